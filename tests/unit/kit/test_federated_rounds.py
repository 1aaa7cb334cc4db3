"""What `sync=federated,...` may say, and what is refused, and why."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.federated_rounds import FederatedRounds
from peerloom.kit.sync_explained import explained
from peerloom.kit.sync_grammar import parse_sync

REST = "clients=1.0,quorum=0.9,sampling=even,stale=refuse,split=even"
RING = "topology=ring,codec=none"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("federated", f"federated,algorithm=fedavg,epochs=1,{REST},{RING}"),
        ("federated,algorithm=fedprox", f"federated,algorithm=fedprox,mu=0.01,epochs=1,{REST},{RING}"),
        ("federated,h=20,algorithm=fedadam", f"federated,algorithm=fedadam,rate=0.01,h=20,{REST},{RING}"),
        (
            "federated,clients=3,stale=bound:2,split=dirichlet:.1,shards=9,sampling=belief,quorum=.5,codec=int8",
            "federated,algorithm=fedavg,epochs=1,clients=3,quorum=0.5,sampling=belief,stale=bound:2,"
            "split=dirichlet:0.1,shards=9,topology=direct,codec=int8",
        ),
    ],
)
def test_what_is_left_out_is_filled_in(text: str, whole: str) -> None:
    assert str(parse_sync("sync", text)) == whole
    assert str(parse_sync("sync", whole)) == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("federated,h=0", "h=H with a whole number from 1"),
        ("federated,epochs=1001", "from 1 to 1,000"),
        ("federated,epochs=1,h=2", "not both"),
        ("federated,mu=0.1", "belongs to algorithm=fedprox"),
        ("federated,rate=0.1,algorithm=fedprox", "belongs to algorithm=fedadam"),
        ("federated,algorithm=fedprox,mu=nan", "a mu above 0"),
        ("federated,algorithm=fedave", "did you mean fedavg?"),
        ("federated,clients=0", "clients=N with a whole number from 1"),
        ("federated,clients=0.0", "clients=FRACTION above 0.0"),
        ("federated,clients=1.5", "clients=FRACTION above 0.0"),
        ("federated,quorum=0", "a quorum above 0"),
        ("federated,stale=bound", "of a stale that is there"),
        ("federated,stale=bound:0", "stale=bound:S with a whole number from 1"),
        ("federated,stale=refuse:3", "of a stale that is there"),
        ("federated,split=dirichlet:0", "split=dirichlet:ALPHA with a number from 0.001"),
        ("federated,split=dirichlet:inf", "split=dirichlet:ALPHA with a number"),
        ("federated,shards=0", "shards=N with a whole number"),
        ("federated,clients", "KEY=VALUE pairs"),
        ("federated,period=3", "KEY=VALUE pairs of algorithm"),
        ("federated,h=3,h=3", "without a second h"),
        ("federated,topology=ring,codec=int8", "the nearest is federated,.*topology=direct,codec=int8"),
        ("federatd", "did you mean federated?"),
    ],
)
def test_what_cannot_be_is_refused_with_its_limit(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("?", r"\?")):
        parse_sync("sync", text)


def test_federated_rounds_cannot_be_robust() -> None:
    with pytest.raises(InvalidArgumentError, match="nobody else has a rank's local steps"):
        parse_sync("sync", "federated", "krum")


def test_over_nccl_the_nearest_method_is_federated_too() -> None:
    with pytest.raises(InvalidArgumentError, match=r"the nearest is federated,.*topology=ring,codec=bf16"):
        parse_sync("sync", "federated,codec=int4", backend="nccl")


def test_how_many_are_wanted_and_needed() -> None:
    assert [FederatedRounds(fraction=0.5).wanted(present) for present in (1, 3, 4)] == [1, 2, 2]
    assert [FederatedRounds(count=3).wanted(present) for present in (1, 3, 4)] == [1, 3, 3]
    assert [FederatedRounds(quorum=0.9).needed(drawn) for drawn in (0, 1, 3, 10, 20)] == [1, 1, 3, 9, 18]


def test_a_method_says_who_trains_and_what_becomes_of_older_updates() -> None:
    found = explained(parse_sync("sync", "federated,algorithm=fedadam,clients=0.5,stale=bound:2,h=7"))
    assert "makes 7 batches over its own shard" in found.period
    assert found.outer == "an outer Adam moves them by the ranks' mean change; rate 0.01"
    assert found.clients.startswith("50% of those there a round, which ends when 90% of them have answered")
    assert "S is 2" in found.stale
    plain = explained(parse_sync("sync", "period=4,outer=adam:0.1"))
    assert (plain.clients, plain.stale) == ("", "")
    assert plain.method.endswith("outer=adam:0.1")
