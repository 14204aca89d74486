"""Lua scripts of the lease. Each handles all its partitions in one atomic step, since Redis runs nothing else at the same time.

KEYS are, per partition, the lease and the record (their fields: ``lease.py``); those of ARM and RAISE the record alone.
"""

from __future__ import annotations

from linkengine.coordination.client import NOW_MS

# ARGV: token, ttl, for how long a marker may be in flight
ACQUIRE = (
    NOW_MS
    + """
local replies = {}
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, clean = redis.call('GET', lease), '0'
  if owner and owner ~= ARGV[1] then
    if redis.call('PTTL', lease) > tonumber(ARGV[2]) then redis.call('PEXPIRE', lease, ARGV[2]) end
    replies[i] = {0}
  else
    local last = redis.call('HMGET', record, 'holder', 'clean', 'seen', 'markers_at', 'left', 'released_at')
    if owner then clean = last[2] or '0'
    elseif not last[1] or last[1] == '' then clean = '1' end
    local seen, announced = clean == '1' and last[3] or '', tonumber(last[4] or '0')
    local underway = announced > 0 and now - announced < tonumber(ARGV[3]) and 1 or 0
    local rested = last[6] and math.max(now - last[6], 0) or 0
    replies[i] = {redis.call('HINCRBY', record, 'generation', 1), seen, tonumber(clean), underway, last[5] or '', rested}
    redis.call('HSET', record, 'holder', ARGV[1], 'clean', clean, 'left', '')
    redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
  end
end
return replies
"""
)
# ARGV: token, ttl, then per partition: own generation, whether the deadline has not passed, who is announced (1 an earlier
# owner, 2 this)
RENEW = (
    NOW_MS
    + """
local held = {}
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local own, in_time, announced = tonumber(ARGV[3 * i]), ARGV[3 * i + 1] == '1', ARGV[3 * i + 2]
  local owner = redis.call('GET', lease)
  local known = redis.call('HMGET', record, 'generation', 'holder')
  local generation = tonumber(known[1] or '0')
  local mine = owner == ARGV[1]
  local untaken = not owner and known[2] == ARGV[1] and generation <= own
  local data_lost = in_time and generation <= own
  if mine or untaken or data_lost then
    if not mine and not untaken and generation == own then generation = own + 1 end  -- so that the new owner loses it
    redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
    redis.call('HSET', record, 'generation', math.max(generation, own), 'holder', ARGV[1])
    if announced == '2' then redis.call('HSET', record, 'markers_at', stamp) end
    if announced == '1' then redis.call('HSETNX', record, 'markers_at', stamp) end
    held[i] = 1
  else
    held[i] = 0
  end
end
return held
"""
)
# ARGV: token, ``seen`` for the next owner, whether the release is clean
RELEASE = (
    NOW_MS
    + """
for i = 1, #KEYS / 2 do
  local lease, record = KEYS[2 * i - 1], KEYS[2 * i]
  local owner = redis.call('GET', lease)
  if (not owner or owner == ARGV[1]) and redis.call('HGET', record, 'holder') == ARGV[1] then
    if ARGV[3] == '1' then  -- otherwise as if the lease had expired
      redis.call('HSET', record, 'holder', '', 'seen', ARGV[2], 'markers_at', '0', 'released_at', stamp)
    end
    redis.call('HSET', record, 'left', ARGV[2])
    redis.call('DEL', lease)
  end
end
return #KEYS
"""
)
# ARGV: how late a copy worker may still ask for the lease
FORGET = """
for i = 1, #KEYS / 2 do
  redis.call('DEL', KEYS[2 * i - 1], KEYS[2 * i])
  redis.call('HSET', KEYS[2 * i], 'generation', 0)  -- fields that are added later expire with the key
  redis.call('PEXPIRE', KEYS[2 * i], ARGV[1])
end
"""
ARM = (
    NOW_MS
    + """
local announced = {}
for i = 1, #KEYS do
  announced[i] = redis.call('HGET', KEYS[i], 'holder') == ARGV[1] and 1 or 0
  if announced[i] == 1 then redis.call('HSET', KEYS[i], 'markers_at', stamp) end
end
return announced
"""
)
RAISE = (
    NOW_MS
    + """
local raised, least = {}, tonumber(ARGV[1])
for i = 1, #KEYS do
  local known = tonumber(redis.call('HGET', KEYS[i], 'generation') or '0')
  if known < least then redis.call('HSET', KEYS[i], 'generation', ARGV[1], 'markers_at', stamp) end
  raised[i] = math.max(known, least)
end
return raised
"""
)
