"""What the survey prints of its measurements, and whether predictions agree. Pure functions.

The figures are of Figure 4 and of sections 2.2 and 4.2.1; the statements of sections 4.2.1 to 4.2.3. For 4
GPUs and ResNet-50 no method is named, so the best of all stands beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

RESNET, BASE, LARGE = "ResNet-50", "BERT-Base", "BERT-Large"
ON_4, ON_32 = 4, 32
SpeedUps = Mapping[tuple[str, int], Mapping[str, float]]  # by model and workers, then by method


@dataclass(frozen=True)
class PrintedSpeedUp:
    """The best speed-up on so many workers, and whose it is said to be; no method: the best of all."""

    model: str
    workers: int
    method: str
    speed_up: float


@dataclass(frozen=True)
class Claim:
    """A statement and the cells of the table in which predictions agree or not."""

    text: str
    cells: Mapping[str, bool]


PRINTED = (
    PrintedSpeedUp(RESNET, ON_4, "", 4.0),
    PrintedSpeedUp(RESNET, ON_32, "bytescheduler-ps", 31.6),
    PrintedSpeedUp(BASE, ON_4, "mg-wfbp", 3.1),
    PrintedSpeedUp(BASE, ON_32, "mg-wfbp", 23.2),
    PrintedSpeedUp(LARGE, ON_4, "mg-wfbp", 1.2),
)
PRINTED_WITHOUT_OVERLAP, PRINTED_NVLINK = 1.08, 3.82  # BERT-Large on 4 GPUs; on 4 V100 with batches of 128


def named(printed: PrintedSpeedUp, found: SpeedUps) -> float:
    """The speed-up found for what was printed."""
    methods = found[printed.model, printed.workers]
    return methods[printed.method] if printed.method else max(methods.values())


def claims(found: SpeedUps) -> tuple[Claim, ...]:
    """The survey's statements beside speed-ups of all seven methods in all six cells."""

    def ahead(first: str, second: str, *cells: tuple[str, int]) -> dict[str, bool]:
        chosen = cells or tuple(found)
        return {_cell(one): found[one][first] > found[one][second] for one in chosen}

    def best(method: str, *cells: tuple[str, int]) -> dict[str, bool]:
        return {_cell(one): found[one][method] == max(found[one].values()) for one in cells}

    on_32 = [cell for cell in found if cell[1] == ON_32]
    on_4 = [cell for cell in found if cell[1] == ON_4]
    return (
        Claim("a model of low intensity, or with a small batch, scales worse", _in_order(found)),
        Claim("without overlap A2A is ahead of PS", ahead("bsp-a2a", "bsp-ps")),
        Claim("WFBP is ahead of BSP over PS", ahead("wfbp-ps", "bsp-ps")),
        Claim("with WFBP PS is ahead of A2A on 32", ahead("wfbp-ps", "wfbp-a2a", *on_32)),
        Claim("with WFBP PS is ahead of A2A on 4 too", ahead("wfbp-ps", "wfbp-a2a", *on_4)),
        Claim("merging makes up for A2A's start-up", ahead("mg-wfbp", "wfbp-a2a")),
        Claim(
            "MG-WFBP is the best for BERT",
            best("mg-wfbp", (BASE, ON_4), (BASE, ON_32), (LARGE, ON_4), (LARGE, ON_32)),
        ),
        Claim(
            "ByteScheduler-PS is ahead of MG-WFBP for ResNet-50 on 32",
            ahead("bytescheduler-ps", "mg-wfbp", (RESNET, ON_32)),
        ),
        Claim(
            "ByteScheduler-PS is ahead of WFBP-PS for ResNet-50",
            ahead("bytescheduler-ps", "wfbp-ps", (RESNET, ON_4), (RESNET, ON_32)),
        ),
        Claim(
            "cutting suits PS better than A2A on 32", ahead("bytescheduler-ps", "bytescheduler-a2a", *on_32)
        ),
        Claim("over A2A merging is ahead of cutting", ahead("mg-wfbp", "bytescheduler-a2a")),
        Claim("neither PS nor A2A is always the best", {"all": len(_best_topologies(found)) == 2}),
    )


def _in_order(found: SpeedUps) -> dict[str, bool]:
    return {
        f"on {workers}": max(found[RESNET, workers].values())
        > max(found[BASE, workers].values())
        > max(found[LARGE, workers].values())
        for workers in (ON_4, ON_32)
    }


def _best_topologies(found: SpeedUps) -> set[bool]:
    """Whether the best is of PS, over all cells."""
    return {max(methods, key=lambda one: methods[one]).endswith("-ps") for methods in found.values()}


def _cell(cell: tuple[str, int]) -> str:
    return f"{cell[0]} on {cell[1]}"
