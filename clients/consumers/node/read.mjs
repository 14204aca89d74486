// Reads a topic with a single partition with one client and prints what the client returns: a JSON array of [offset, value].
//
//   node read.mjs CLIENT TOPIC ISOLATION
//
// CLIENT is kafkajs or platformatic; ISOLATION is read_committed or read_uncommitted. BROKERS, USERNAME and PASSWORD are in the
// environment (SASL_PLAINTEXT, SCRAM-SHA-512). Reading ends after five seconds without a record.
import { randomUUID } from 'node:crypto'

const IDLE_MS = 5000
const [client, topic, isolation] = process.argv.slice(2)
const { BROKERS, USERNAME, PASSWORD } = process.env
const brokers = BROKERS.split(',')
const committed = isolation === 'read_committed'
const rows = []
let last = Date.now()

function keep(offset, value) {
  rows.push([Number(offset), value === null || value === undefined ? null : value.toString('utf8')])
  last = Date.now()
}

async function untilIdle() {
  while (Date.now() - last < IDLE_MS) await new Promise(resolve => setTimeout(resolve, 100))
}

const readers = {
  async kafkajs() {
    const { Kafka, logLevel } = await import('kafkajs')
    const sasl = { mechanism: 'scram-sha-512', username: USERNAME, password: PASSWORD }
    const kafka = new Kafka({ clientId: 'consumers', brokers, sasl, logLevel: logLevel.NOTHING })
    const consumer = kafka.consumer({ groupId: `consumers-${randomUUID()}`, readUncommitted: !committed })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    const joined = new Promise(resolve => consumer.on(consumer.events.GROUP_JOIN, resolve))
    await consumer.run({ eachMessage: async ({ message }) => keep(message.offset, message.value) })
    await joined
    last = Date.now()
    await untilIdle()
    await consumer.disconnect()
  },

  async platformatic() {
    const { Consumer, FetchIsolationLevels, MessagesStreamModes } = await import('@platformatic/kafka')
    const consumer = new Consumer({
      groupId: `consumers-${randomUUID()}`,
      clientId: 'consumers',
      bootstrapBrokers: brokers,
      sasl: { mechanism: 'SCRAM-SHA-512', username: USERNAME, password: PASSWORD }
    })
    const stream = await consumer.consume({
      topics: [topic],
      mode: MessagesStreamModes.EARLIEST,
      isolationLevel: committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED
    })
    last = Date.now()
    const failed = new Promise((_, reject) => stream.on('error', reject))
    stream.on('data', message => keep(message.offset, message.value))
    await Promise.race([untilIdle(), failed])
    await consumer.close(true)
  }
}

if (!readers[client] || !topic || !isolation) {
  console.error('usage: node read.mjs kafkajs|platformatic TOPIC read_committed|read_uncommitted')
  process.exit(2)
}
try {
  await readers[client]()
  console.log(JSON.stringify(rows))
  process.exit(0)
} catch (error) {
  console.error(error?.stack ?? String(error))
  process.exit(1)
}
