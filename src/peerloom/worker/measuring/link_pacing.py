"""Has a generation's connections share their links evenly, once its ranks know what these carry.

That is looked at after the first steps, and again after minutes' steps: all ranks do so after the same ones.
Who knows links tells the others, and where one isn't known all are measured, while the training pauses.
"""

import math
import time
from collections.abc import Callable, Sequence

from peerloom.kit.logs import get_logger
from peerloom.kit.robust_rules import OFF
from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.group.process_group import Group
from peerloom.worker.measuring.link_probe import LinkProbe
from peerloom.worker.measuring.node_measures import LASTING_S, NodeMeasures
from peerloom.worker.measuring.rate_news import MOST_UNTIL_NEXT, RateNews, agreed, parsed
from peerloom.worker.measuring.together_probe import FEWEST_RANKS, LONG_S, TogetherProbe
from peerloom.worker.measuring.trips import told_by_all
from peerloom.worker.mesh.pacing import MARGIN, LinkRates, paces, shares_links
from peerloom.worker.training import Training

FIRST_LOOK = 2  # steps: what a generation took to form is over, and what its first step alone takes
# That the training may still wait for messages: measuring takes seconds, and saves a tenth or more.
LEAST_LEFT_S = 60.0
MARGIN_OF_PROBE = 1.25  # a link that carries more than was seen until then shows it
FIRST_TOLD = (1 << 62) + (1 << 42)  # numbers that no exchange of the training reaches, and no probe
_log = get_logger()


class LinkPacing:
    """One generation's, whose mesh stands. With `must_measure` its ways are measured in the first look.

    All ranks' is alike. `now_s` is a monotonic clock. What it finds is noted in `known`.
    """

    def __init__(
        self,
        training: Training,
        group: Group,
        known: NodeMeasures,
        must_measure: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        assert group.mesh is not None, "there are connections to be paced"
        self._training, self._group, self._mesh = training, group, group.mesh
        self._known, self._must_measure, self._now_s = known, must_measure, now_s
        self._made, self._next_look = 0, FIRST_LOOK
        self._waited_s, self._begun_s = _waited_s(training), now_s()
        self._number = FIRST_TOLD
        self.links: Sequence[MeasuredLink] | None = None  # that this rank has measured in this generation

    def after_step(self, steps: int) -> None:
        """A step, or the `steps` of a round, were made. All workers call it after the same ones."""
        self._made += 1
        waited_s, self._waited_s = self._waited_s, _waited_s(self._training)
        took_s, self._begun_s = self._now_s() - self._begun_s, self._now_s()
        if self._made != self._next_look:
            return
        left = (self._training.schedule.total_steps - self._training.state.step) / steps
        pays = left * (self._waited_s - waited_s) >= LEAST_LEFT_S
        until_next = min(max(1, math.ceil(LASTING_S / max(took_s, 1e-6))), MOST_UNTIL_NEXT)
        try:
            self._look(pays, until_next)
        except RuntimeError as error:
            _log.info("links_not_measured", generation=self._group.generation, reason=str(error))
        self._begun_s = self._now_s()

    def _look(self, pays: bool, until_next: int) -> None:
        """Raises RuntimeError when a peer is lost."""
        group, is_first = self._group, self._made == FIRST_LOOK
        ways = self._ways() if self._must_measure and is_first else None
        if not is_shared(self._training, group):
            return
        rates = [LinkRates()] * group.world_size
        if is_first:
            rates = self._known.rates(group.node_ids, self._now_s())
        news = self._told(RateNews(pays and self._mesh.bears_pacing, until_next, 0.0, rates))
        links = agreed(news)
        if not all(link.is_known for link in links):
            if not any(one.wants_measuring for one in news):
                return
            links = self._measured(ways)
        self._known.note_rates(group.node_ids, links, self._now_s())
        paced = self._pace(links)
        if paced:
            self._next_look = self._made + news[0].until_next
        _log.info("connections_paced", generation=group.generation, ways=paced)

    def _pace(self, links: Sequence[LinkRates], margin: float = MARGIN) -> int:
        """How many ways between all ranks are to be paced from now on."""
        found = paces(self._training.sync, self._group.node_ids, links, margin)
        own = {taker: pace for (sender, taker), pace in found.items() if sender == self._group.rank}
        self._mesh.pace(own)
        return len(found)

    def _measured(self, ways: tuple[float, list[LinkRates]] | None) -> list[LinkRates]:
        """What all links carry, by the `ways` between the ranks and by what comes while all ask all."""
        self._mesh.pace({})
        together, seen = ways or self._ways()
        links = agreed(self._told(RateNews(False, 0, together, seen)))
        if self._pace(links, MARGIN_OF_PROBE):
            # TCP's own shares were uneven, so the last answers came late: even ones show what a link brings.
            group, measured = self._group, self.links or ()
            probe = TogetherProbe(self._mesh, group.rank, group.world_size, measured, least_s=LONG_S)
            links = agreed(self._told(RateNews(False, 0, probe.run(), links)))
        return links

    def _ways(self) -> tuple[float, list[LinkRates]]:
        """What came while all asked all, and what this rank's ways to others show of each rank's link."""
        group, mesh = self._group, self._mesh
        links = LinkProbe(mesh, group.rank, group.world_size).run()
        together = TogetherProbe(mesh, group.rank, group.world_size, links).run()
        self.links = links
        self._known.note_ways(links, group.node_ids)
        self._known.together_bits_per_s = together
        _log.info(
            "ways_measured", generation=group.generation, links=len(links), together_bits_per_s=together
        )
        rates = [LinkRates()] * group.world_size
        for link in links:
            rates[link.rank] = LinkRates(link.received_bits_per_s, link.sent_bits_per_s)
        up = max((link.sent_bits_per_s for link in links), default=0.0)
        rates[group.rank] = LinkRates(up, max((link.received_bits_per_s for link in links), default=0.0))
        return together, rates

    def _told(self, own: RateNews) -> list[RateNews]:
        """Every rank's word, in their order; blocks. Raises RuntimeError when a peer is lost."""
        rank, ranks = self._group.rank, self._group.world_size
        self._number += 1
        told = {peer: own.packed() for peer in range(ranks) if peer != rank}
        came = told_by_all(self._mesh, self._number, told, "a rank didn't tell of its links")
        return [own if peer == rank else parsed(came[peer]) for peer in range(ranks)]


def is_shared(training: Training, group: Group) -> bool:
    """Whether the connections of this group share links, between so many that it matters."""
    are_several = group.mesh is not None and group.world_size >= FEWEST_RANKS
    return shares_links(training.sync) and training.robust == OFF and are_several


def _waited_s(training: Training) -> float:
    """What all steps took beside computing."""
    return training.figures.training_s - training.figures.compute_s
