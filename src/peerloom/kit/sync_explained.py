"""What a way to synchronise does, costs and guarantees, in words: pure functions."""

from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.averaged_parts import AveragedParts
from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.codec_sizes import LEAST_SAVED_BYTES, VALUE_BYTES, encoded_bytes
from peerloom.kit.federated_rounds import BOUND, EVEN, FEDERATED_CHOICES, FederatedRounds
from peerloom.kit.local_rounds import ADAM, AVERAGE, NESTEROV, OUTER_CHOICES, LocalRounds
from peerloom.kit.stale_steps import LATE_CHOICES, WEIGHTED, StaleSteps
from peerloom.kit.sync_auto import is_auto
from peerloom.kit.sync_grammar import CHOICES, parse_sync
from peerloom.kit.sync_method import DOUBLING, HIERARCHY, NONE, RING, SyncMethod
from peerloom.kit.topology_choices import SERVERS_COUNTED, SERVERS_NAMED, SITES_NAMED, TOPOLOGY_CHOICES

_VALUES = 2**20  # a message so long that how its end is filled up doesn't show


@dataclass(frozen=True)
class SyncExplanation:
    """`method` with all its pairs; `bytes_per_parameter` that a message has in a step with single-precision
    gradients (of powersgd in a square matrix of a million values), and `bytes_ratio`, the same as a part of
    what codec=none takes. A round has `batches`, and before its end `averages` within groups or of parts,
    each of `bytes_per_average` a parameter; `period` and `outer` are empty where that is one, whose gradients
    travel. `clients` and `stale` are of federated rounds, and else empty, and so is `late_gradients` without
    a staleness or a backup."""

    method: str
    schedule: str
    topology: str
    codec: str
    period: str
    outer: str
    clients: str
    stale: str
    late_gradients: str
    batches: int
    averages: int
    bytes_per_average: float
    bytes_per_parameter: float
    bytes_ratio: float
    small_messages: str
    is_exact: bool
    sums: str
    ranks: str


def method_to_explain(field: str, text: str) -> SyncMethod:
    """The method that `text` names. Raises InvalidArgumentError as `parse_sync` does, and for "auto"."""
    if is_auto(text):
        what = "a method: auto takes one by what a job's workers measure, which 'peerloom jobs show' explains"
        raise InvalidArgumentError.of_field(field, text, f"{what}; 'sync list' ranks them for a network")
    return parse_sync(field, text)


def explained(method: SyncMethod) -> SyncExplanation:
    """What to know of a method."""
    each = encoded_bytes(method, _VALUES) / _VALUES
    return SyncExplanation(
        method=str(method),
        schedule=_schedule(method),
        topology=_topology(method),
        codec=_described("codec", method.codec),
        period=_period(method),
        clients=_clients(method.federated) if method.federated is not None else "",
        stale=_stale(method.federated) if method.federated is not None else "",
        late_gradients=_late(method.stale) if method.stale is not None else "",
        outer=_outer(method.rounds) if method.rounds is not None else "",
        batches=method.batches,
        averages=_averages(method),
        bytes_per_average=each / method.partial.parts if method.partial is not None else VALUE_BYTES,
        bytes_per_parameter=each,
        bytes_ratio=each / VALUE_BYTES,
        small_messages=_small_messages(method),
        is_exact=method.is_exact,
        sums=_sums(method),
        ranks=_ranks(method),
    )


def _described(key: str, word: str) -> str:
    """Of a word with and without a number the first is the one without."""
    return next(does for choice, does in CHOICES[key].items() if choice.partition(":")[0] == word)


def _topology(method: SyncMethod) -> str:
    if method.server_nodes:
        return (
            f"{TOPOLOGY_CHOICES[SERVERS_NAMED]}; their links carry all traffic; while none of them has a "
            "worker all ranks are servers, and where all ranks are on them this is topology=ps"
        )
    if method.servers:
        return TOPOLOGY_CHOICES[SERVERS_COUNTED]
    return TOPOLOGY_CHOICES[SITES_NAMED if method.sites else method.topology]


def _small_messages(method: SyncMethod) -> str:
    if method.codec == NONE:
        return ""
    what = "a message that"
    if method.codec == POWER_SGD:
        what = "vectors travel as they are, and a matrix whose factors"
    told = f"{what} would be less than {LEAST_SAVED_BYTES} bytes shorter travels as it is"
    if method.codec_from:
        told += f"; before that, all parameters of fewer than {method.codec_from} bytes do"
    return told


def _schedule(method: SyncMethod) -> str:
    if method.rounds is not None:
        meanwhile = ", while the next round is computed" if method.rounds.delay else ""
        return f"what the local steps changed leaves after the round's last batch{meanwhile}"
    if method.stale is not None:
        return "a batch's worth of parts leaves when it is there, while the ranks compute the next ones"
    return _described("schedule", method.schedule)


def _ranks(method: SyncMethod) -> str:
    same = "the same bits on all ranks after each step"
    if method.rounds is not None:
        same = "the same bits on all ranks after each round; within it each has parameters of its own"
    if method.codec == POWER_SGD:
        return f"{same}: from the same sums all compute the same, by operations that round alike everywhere"
    if method.topology == DOUBLING:
        return f"{same}: the two of a pair add the same two sums, in the same order"
    if _is_decoded(method):
        return f"{same}: the owner of a part encodes its sum once, and all decode the same bytes"
    return same


def _is_decoded(method: SyncMethod) -> bool:
    return method.topology != RING and method.codec != NONE


def _period(method: SyncMethod) -> str:
    rounds, federated = method.rounds, method.federated
    if rounds is None:
        return ""
    if federated is not None:
        work = f"{federated.batches} batches" if federated.batches else f"passes ({federated.epochs})"
        prox = f", drawn to where it began by mu={federated.mu:g}" if federated.mu else ""
        return (
            f"a step is a round: each drawn client makes {work} over its own shard by the task's "
            f"optimiser{prox}, and pushes what that changed"
        )
    return (
        f"a round is {rounds.period} steps, or what is left of an epoch: each rank makes them by the task's "
        f"optimiser for its samples of each batch, then all exchange what that changed{_delay(rounds)}"
        f"{_groups(rounds)}{_partial(rounds)}"
    )


def _delay(rounds: LocalRounds) -> str:
    if not rounds.delay:
        return ""
    return (
        "; each goes on from its own end of the round meanwhile, and hears of the others' part of it a round "
        "later, when the round counts"
    )


def _groups(rounds: LocalRounds) -> str:
    groups = rounds.groups
    if groups is None:
        return ""
    who = "the ranks of each site"
    if groups.size:
        who = f"groups of at most {groups.size} ranks, others each time,"
    times = groups.occasions(rounds.period)
    return (
        f"; within a round {who} average their parameters after each {_batches(groups.every)}, {times} times "
        "in a whole one, as they are, whatever the codec is"
    )


def _partial(rounds: LocalRounds) -> str:
    partial = rounds.partial
    if partial is None:
        return ""
    return (
        f"; within a round all average one of {partial.parts} values after each {_batches(partial.every)}, "
        f"others each time, by the codec, {partial.occasions(rounds.period)} times in a whole one"
        f"{_late_mean(partial)}"
    )


def _late_mean(partial: AveragedParts) -> str:
    if not partial.late:
        return ""
    batches = f"{partial.late} batches" if partial.late > 1 else "a batch"
    return f", and take up the mean {batches} later, as they compute meanwhile"


def _batches(every: int) -> str:
    return f"{every} batches" if every > 1 else "batch"


def _averages(method: SyncMethod) -> int:
    within = method.groups or method.partial
    return within.occasions(method.batches) if within is not None else 0


def _clients(federated: FederatedRounds) -> str:
    part = f"{federated.count}" if federated.count else f"{federated.fraction:.0%}"
    choices = FEDERATED_CHOICES["sampling"]
    split = f"{federated.split}:ALPHA" if federated.split != EVEN else EVEN
    return (
        f"{part} of those there a round, which ends when {federated.quorum:.0%} of them have answered; "
        f"{choices[federated.sampling]}; {FEDERATED_CHOICES['split'][split]}"
    )


def _stale(federated: FederatedRounds) -> str:
    word = f"{federated.stale}:S" if federated.stale == BOUND else federated.stale
    s = f" (S is {federated.bound})" if federated.stale == BOUND else ""
    return f"{FEDERATED_CHOICES['stale'][word]}{s}; an update counts once, and one that isn't finite never"


def _late(stale: StaleSteps) -> str:
    if stale.bound is None:
        age = "a gradient counts however old its parameters are, and nobody is waited for"
    else:
        age = f"no gradient counts whose parameters are more than {stale.bound} steps old"
    beyond = ""
    if stale.backup:
        beyond = (
            f"; a step takes parts from {stale.backup:.0%} of the ranks, and a part beyond the bound is "
            "refused: its samples are handed out again"
        )
    elif stale.bound is not None:
        beyond = "; who would be beyond that is waited for"
    weight = f"; {LATE_CHOICES[WEIGHTED]}" if stale.weighted else ""
    return f"{age}{beyond}{weight}; each sample counts once an epoch"


def _outer(rounds: LocalRounds) -> str:
    if rounds.adam:
        return f"{OUTER_CHOICES[f'{ADAM}:RATE']}; rate {rounds.rate:g}"
    if rounds.averages:
        return OUTER_CHOICES[AVERAGE]
    how = OUTER_CHOICES[f"{NESTEROV}:RATE:MOMENTUM"]
    far = rounds.rate / (1 - rounds.momentum)
    return (
        f"{how}; rate {rounds.rate:g}, momentum {rounds.momentum:g}: in the long run {far:.3g} times as far "
        "as that change, so a learning rate near the largest that works has to be smaller"
    )


def _sums(method: SyncMethod) -> str:
    if method.codec == NONE:
        return "exact, but for the rounding of the last bits, which the order of adding decides"
    if method.topology == HIERARCHY and method.codec != POWER_SGD:  # whose factors travel as they are
        return "lossy between the sites, where alone values are encoded, and exact inside them" + (
            "; what a leader leaves out of a step it adds to the next" if method.has_feedback else ""
        )
    if method.has_feedback:
        return (
            "lossy; what a step leaves out is added to the next, so that only the last residuals of the "
            "ranks are missing in the sum of all steps"
        )
    if method.topology == DOUBLING:
        return "lossy: each sum rounded to 16 bits before it goes on; added in single precision"
    if method.topology != RING:
        return "lossy: rounded to 16 bits before and after adding; added in single precision"
    return "lossy: rounded to 16 bits, and added in 16 bits from rank to rank"
