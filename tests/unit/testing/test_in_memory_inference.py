"""Questions to scripted models in memory: the real ways, queues, refusals, retries and second opinions."""

import asyncio
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import peerloom
from peerloom import RawInput
from peerloom.client.types.inference import Inference
from peerloom.errors import (
    DeadlineError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.testing import InMemorySystem, ModelScript, Question, TrainingScript

pytestmark = pytest.mark.timeout(120)
QUICK = TrainingScript(samples=48)
INPUTS = np.zeros((2, 1, 8, 8))
INPUTS[1, 0, 0, 0] = 7  # whose sum is 7, so by default it is one


def opened(model: ModelScript | None = None, **more: Any) -> InMemorySystem:
    return InMemorySystem(**{"nodes": 3, "seed": 5, "script": QUICK, "model": model, **more})


def trained(client: peerloom.Client) -> str:
    assert client.train("digits", epochs=1, name="mine").result().succeeded
    return "mine"


def test_an_answer_comes_with_its_labels_way_and_node_and_the_same_for_the_same_seed() -> None:
    def told() -> Inference:
        with opened() as system, system.client() as client:
            return client.infer(trained(client), INPUTS)

    answer, again = told(), told()
    assert (answer.labels, answer.mode, answer.model_s) == (("0", "7"), "remote", 0.01)
    assert answer.nodes[0] in ("node1", "node2", "node3")
    assert (answer.seconds, answer.nodes, answer.reason) == (again.seconds, again.nodes, again.reason)


def test_a_script_is_told_what_was_asked_and_its_answer_is_the_outputs() -> None:
    asked: list[Question] = []

    def answer(question: Question) -> list[list[float]]:
        asked.append(question)
        return [[float(value.max()), 0.5] for value in question.inputs]

    takes = RawInput((3,), "float32", -1, 1)
    with opened(ModelScript(answer, takes)) as system, system.client() as client:
        model = trained(client)
        found = client.infer(model, [[0.25, 0, 0], [0, 1, 0]])
        assert found.outputs.tolist() == [[0.25, 0.5], [1.0, 0.5]]
        (question,) = asked
        assert (question.task, question.node) == ("digits", found.nodes[0])
        assert question.model == client.model(model).digest
        assert question.inputs.tolist() == [[0.25, 0, 0], [0, 1, 0]]


def test_tasks_have_scripts_of_their_own() -> None:
    with opened() as system, system.client() as client:
        system.script_model("text", ModelScript(lambda question: [[9.0]], RawInput((1,), "int8", 0, 9)))
        for task in ("digits", "text"):
            assert client.train(task, epochs=1, name=task).result().succeeded
        assert client.infer("digits", INPUTS).labels == ("0", "7")
        assert client.infer("text", [[4]]).outputs.tolist() == [[9.0]]


async def _several(
    client: peerloom.AsyncClient, model: str, count: int, timeout_s: float
) -> list[Inference | BaseException]:
    asks = (client.infer(model, INPUTS[:1], "remote", timeout_s=timeout_s) for _ in range(count))
    async with client:
        return await asyncio.gather(*asks, return_exceptions=True)


def test_who_is_refused_comes_again_until_its_answer_is_there() -> None:
    """Six ask at once where one may wait, two seconds each: but for coming again four would be refused."""
    sizes: list[int] = []

    def answer(question: Question) -> np.ndarray:
        sizes.append(len(question.inputs))
        return np.zeros((len(question.inputs), 10))

    with (
        opened(ModelScript(answer, latency_s=2.0), nodes=1, queue_samples=1) as system,
        system.client() as client,
    ):
        model, began_s = trained(client), system.clock.monotonic_s()
        answers = system.run(_several(system.async_client(), model, 6, 500.0))
        assert all(isinstance(each, Inference) for each in answers), answers
        assert sizes == [1] * 6
        assert system.clock.monotonic_s() - began_s >= 12.0


def test_who_would_not_be_answered_in_time_hears_when_to_come_again() -> None:
    with opened(ModelScript(latency_s=2.0), nodes=1, queue_samples=1) as system, system.client() as client:
        model = trained(client)
        client.infer(model, INPUTS)  # from here on the node knows that an input takes it a second
        answers = system.run(_several(system.async_client(), model, 6, 3.0))
        refusals = [each for each in answers if isinstance(each, ResourceExhaustedError)]
        assert any(isinstance(each, Inference) for each in answers)
        assert refusals
        for refusal in refusals:
            assert refusal.reason == "INFERENCE_BUSY"
            assert float(refusal.metadata["retry_after_s"]) > 0
            assert "Come again in" in refusal.message


def test_whoever_is_asked_later_has_what_is_left_of_the_time() -> None:
    """Each takes longer than the caller waits, and another one is asked in the middle of that."""
    with opened() as system, system.client() as client:
        model = client.model(trained(client)).digest
        client.infer(model, INPUTS, "remote")
        system.script_model("digits", ModelScript(latency_s=60.0))
        began_s = system.clock.monotonic_s()
        with pytest.raises(DeadlineError):
            client.infer(model, INPUTS, "remote", timeout_s=5.0)
        assert system.clock.monotonic_s() - began_s < 5.1


def test_a_deadline_ends_a_question_that_takes_longer() -> None:
    with opened(ModelScript(latency_s=30.0), nodes=1) as system, system.client() as client:
        model = trained(client)
        with pytest.raises(DeadlineError):
            client.infer(model, INPUTS, "remote", timeout_s=5.0)
        assert client.infer(model, INPUTS, "remote", timeout_s=100.0).model_s == 30.0


def test_a_node_that_dies_in_the_midst_of_a_question_is_replaced_by_another() -> None:
    with opened() as system, system.client() as client:
        model = trained(client)
        (first,) = client.infer(model, INPUTS).nodes
        system.script_model("digits", ModelScript(latency_s=1.0, loses={first}))
        answer = client.infer(model, INPUTS, "remote", hedge=False)
        assert answer.labels == ("0", "7")
        assert answer.nodes[0] != first
        system.wait_for_node(first, "dead")
        system.start(first)  # and it is one of those again that may answer
        system.script_model("digits", ModelScript())
        system.advance(20)
        assert len(client.infer(model, INPUTS, nodes=3).nodes) == 3


def test_a_node_that_falls_silent_is_passed_over_and_answers_again_when_it_is_back() -> None:
    with opened(nodes=2) as system, system.client() as client:
        model = trained(client)
        client.infer(model, INPUTS, nodes=2)
        (first,) = client.infer(model, INPUTS, "remote").nodes
        system.freeze(first)
        answer = client.infer(model, INPUTS, "remote")
        assert (answer.hedged, answer.labels) == (True, ("0", "7"))
        assert answer.nodes[0] != first
        system.thaw(first)
        system.wait_for_node(first, "alive")
        system.advance(20)
        assert len(client.infer(model, INPUTS, nodes=2).nodes) == 2


def test_a_node_that_leaves_ends_its_serving_politely() -> None:
    with opened(nodes=2) as system, system.client() as client:
        model = trained(client)
        (first,) = client.infer(model, INPUTS, "remote").nodes
        system.leave(first)
        assert client.node(first).state == "left"
        system.advance(20)
        assert client.infer(model, INPUTS, "remote").nodes[0] != first


def test_a_model_by_script_makes_no_text() -> None:
    with opened(nodes=1) as system, system.client() as client:
        model = trained(client)
        with pytest.raises(FailedPreconditionError, match="use infer"):
            list(client.generate(model, "abc"))


def test_where_all_die_it_is_told_what_each_said() -> None:
    with opened(ModelScript(loses={"node1", "node2"}), nodes=2) as system, system.client() as client:
        model = trained(client)
        with pytest.raises(UnavailableError, match="Those asked gave no answer") as raised:
            client.infer(model, INPUTS, "remote", hedge=False)
        assert "node1: " in raised.value.message
        assert "node2: " in raised.value.message
        assert raised.value.reason == "NO_INFERENCE_NODE"


def test_auto_says_of_each_way_why_it_leads_to_no_answer() -> None:
    with opened(nodes=2) as system, system.client() as client:
        model = client.model(trained(client)).digest
        assert client.infer(model, INPUTS).labels == ("0", "7")
        for node in ("node1", "node2"):
            system.kill(node)
            system.wait_for_node(node, "dead")
        system.advance(20)
        with pytest.raises(UnavailableError, match="No way leads to an answer") as raised:
            client.infer(model, INPUTS)
        assert "remote not: no node is alive that takes work" in raised.value.message
        assert "split not: " in raised.value.message
        assert "local not: a system in memory" in raised.value.message
    with opened(nodes=2) as system, system.client() as client:
        trained(client)
        digest = client.model("mine").digest
        for node in ("node1", "node2"):
            system.kill(node)
            system.wait_for_node(node, "dead")
        with pytest.raises(UnavailableError, match=r"remote not: No node can.*local not: a system in memory"):
            client.infer(digest, INPUTS)  # of which this client has heard nothing before


def _liar(node: str) -> ModelScript:
    def answer(question: Question) -> np.ndarray:
        lies = question.node == node
        return np.eye(10)[[5 if lies else 3] * len(question.inputs)]

    return ModelScript(answer)


def test_a_second_opinion_that_differs_is_told_and_most_are_believed() -> None:
    """Whoever is asked first, which is left to chance, lies from then on."""
    asked: list[str] = []

    def answer_of(question: Question) -> np.ndarray:
        asked.append(question.node)
        lies = question.node == asked[0]
        return np.eye(10)[[5 if lies else 3] * len(question.inputs)]

    with opened() as system, system.client() as client:
        model = trained(client)
        client.infer(model, INPUTS, nodes=3)  # so that all hold it: only those give second opinions
        system.script_model("digits", ModelScript(answer_of))
        answer = client.infer(model, INPUTS, "remote", second_opinion="wait", hedge=False)
        first = asked[0]
        assert answer.labels == ("3", "3")
        assert answer.deviating == (first,)
        assert {*answer.nodes, *answer.confirmed_by} == {"node1", "node2", "node3"} - {first}
        system.advance(10)
        told = [each.evidence for each in client.belief_history(first)]
        (wrong,) = [each for each in told if each is not None and each.kind == "wrong_answer"]
        assert "it answered otherwise than" in wrong.detail
        again = client.infer(model, INPUTS, "remote", second_opinion="wait", hedge=False)
        assert first not in (*again.nodes, *again.confirmed_by)
        assert again.deviating == ()


def test_an_own_machine_with_torch_decides_between_two() -> None:
    with opened(nodes=2, computes_here=True) as system, system.client() as client:
        model = trained(client)
        client.infer(model, INPUTS, nodes=2)
        system.script_model("digits", _liar("node1"))
        answers = [
            client.infer(model, INPUTS, "remote", second_opinion="wait", hedge=False) for _ in range(2)
        ]
        assert [each.labels for each in answers] == [("3", "3")] * 2
        assert answers[0].deviating == ("node1",)
        assert "here" in answers[0].confirmed_by


def test_what_fits_no_node_alone_is_split_and_a_lost_stage_is_replaced() -> None:
    """Three GiB by four layers: a node lends two, so it takes two nodes at least."""
    with opened(ModelScript(model_bytes=3 * 2**30), nodes=4) as system, system.client() as client:
        model = trained(client)
        answer = client.infer(model, INPUTS, stages=2)
        assert (answer.mode, answer.labels) == ("split", ("0", "7"))
        assert len(set(answer.nodes)) == 2
        system.script_model("digits", ModelScript(model_bytes=3 * 2**30, loses={answer.nodes[1]}))
        again = client.infer(model, INPUTS, "split", stages=2)
        assert (again.labels, again.replaced) == (("0", "7"), 1)


def test_a_client_computes_itself_where_the_test_says_that_it_can() -> None:
    with opened(computes_here=True) as system, system.client() as client:
        answer = client.infer(trained(client), INPUTS, "local")
        assert (answer.mode, answer.nodes, answer.labels) == ("local", (), ("0", "7"))
    with opened() as system, system.client() as client:
        model = trained(client)
        with pytest.raises(FailedPreconditionError, match="computes_here"):
            client.infer(model, INPUTS, "local")


def test_wrong_inputs_are_told_with_what_was_expected() -> None:
    with opened() as system, system.client() as client:
        model = trained(client)
        assert client.model(model).raw_input is not None
        with pytest.raises(InvalidArgumentError, match="values from 0 to 16"):
            client.infer(model, np.full((1, 1, 8, 8), 17))
        with pytest.raises(InvalidArgumentError, match=r"uint8\[n, 1, 8, 8\]"):
            client.infer(model, np.zeros((1, 9)))


def test_a_model_that_fails_or_answers_rubbish_is_told_so() -> None:
    def fail(question: Question) -> None:
        raise ValueError("unlucky")

    with opened(ModelScript(fail)) as system, system.client() as client:
        model = trained(client)
        with pytest.raises(FailedPreconditionError, match="ValueError: unlucky"):
            client.infer(model, INPUTS)
        system.script_model("digits", ModelScript(lambda question: np.zeros((1, 10))))
        with pytest.raises(UnavailableError, match="rubbish"):
            client.infer(model, INPUTS)


def test_it_needs_no_torch() -> None:
    program = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from peerloom.testing import InMemorySystem
with InMemorySystem(nodes=2, computes_here=True) as system, system.client() as client:
    client.train("digits", name="mine").result()
    for mode in ("remote", "split", "local"):
        print(client.infer("mine", [[[0] * 8] * 8], mode).labels)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout.splitlines() == ["('0',)"] * 3, done.stderr


def test_what_no_node_can_hold_is_split_from_the_first_question_on_also_where_it_lies_already() -> None:
    """Of 3 GiB in three layers a node lends 2: no node holds the model, and one of two layers is full."""
    large = ModelScript(model_bytes=3 * 2**30, layers=3)
    with opened(large) as system, system.client() as client:
        model = trained(client)
        answers = [client.infer(model, INPUTS)]
        system.advance(30.0)
        answers.append(client.infer(model, INPUTS))
        with system.client() as another:
            answers.append(another.infer(model, INPUTS))
        assert [answer.mode for answer in answers] == ["split"] * 3
        remote = answers[1].estimates[0]
        assert (remote.seconds, "3,221,225,472 bytes" in remote.reason) == (None, True)
        with pytest.raises(ResourceExhaustedError, match="more than are left"):
            client.infer(model, INPUTS, mode="remote")


def test_what_split_answers_took_is_believed_more_than_what_they_should_take_but_not_for_ever() -> None:
    with opened() as system, system.client() as client:
        model = trained(client)
        took_s = client.infer(model, INPUTS, mode="split").seconds
        told = client.infer(model, INPUTS).estimates[2]
        assert 0 < (told.seconds or 0) <= took_s
        assert "it took" in told.reason
        system.advance(31.0)
        assert "it took" not in client.infer(model, INPUTS).estimates[2].reason
