import copy
import pickle

from linkengine.domain.errors import ErrorCode, IllegalTransitionError, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState


def test_the_text_of_an_error_begins_with_its_code() -> None:
    error = LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'x' already exists.")

    assert str(error) == "TOPIC_EXISTS_ERROR: Topic 'x' already exists."
    assert (error.code, error.message) == (ErrorCode.TOPIC_EXISTS_ERROR, "Topic 'x' already exists.")


def test_names_of_error_codes_equal_their_values() -> None:
    assert [code.name for code in ErrorCode] == [code.value for code in ErrorCode]


def test_errors_survive_pickling() -> None:
    error = IllegalTransitionError(state=MirrorState.STOPPED, event=MirrorEvent.PAUSE, allowed=[])

    back = pickle.loads(pickle.dumps(error))

    assert type(back) is IllegalTransitionError
    assert (back.code, back.message, str(back)) == (error.code, error.message, str(error))
    assert (back.state, back.event) == (MirrorState.STOPPED, MirrorEvent.PAUSE)
    assert copy.copy(back).message == error.message


def test_an_illegal_transition_states_that_no_transition_is_allowed() -> None:
    error = IllegalTransitionError(state=MirrorState.STOPPED, event=MirrorEvent.PAUSE, allowed=[])

    assert error.message == "Cannot pause a mirror topic in state STOPPED. Allowed now: nothing."
