"""What the selector can be told, and what each choice costs."""

from dataclasses import dataclass

from peerloom.errors import ConfigurationError
from peerloom.kit.allowance import Allowances
from peerloom.kit.checks import check_address
from peerloom.kit.config import knob
from peerloom.kit.metrics import METRICS_HELP
from peerloom.kit.replica_addresses import check_addresses
from peerloom.services.selector.belief.formula import Weights, check_weights
from peerloom.services.selector.belief.movement import reporter_rate
from peerloom.services.selector.belief.track import check_half_life
from peerloom.services.selector.policies import POLICIES, find_policy, load_policy
from peerloom.services.selector.policies.interface import Policy
from peerloom.services.selector.policies.survival import SurvivalPolicy
from peerloom.services.selector.policies.survival_model import Priors
from peerloom.services.selector.policies.thesis_fixed import ThesisFixedPolicy
from peerloom.services.selector.policies.trials import Trials

MAX_EVIDENCE_AN_HOUR = 1_000_000
MAX_REPORTED = 100_000  # pairs of reporter and node whose allowance is remembered
_WILDCARDS = ("0.0.0.0", "[::]")


@dataclass(frozen=True)
class SelectorConfig:
    """Knows whom to trust and whom to choose."""

    listen: str = knob("127.0.0.1:7401", "host:port to serve at; port 0 takes a free one")
    advertise: str = knob(
        "", "host:port that others reach it at; empty: the listening address, which others must then reach"
    )
    registry: str = knob(
        "127.0.0.1:7400", "host:port of the registry; of one with standbys all of theirs, with commas"
    )
    state: str = knob(".peerloom", "folder for the database")
    database: str = knob("", "SQLAlchemy URL; empty: selector.sqlite in the state folder")
    default_policy: str = knob(
        "thesis", "policy of requests that name none; random spreads work evenly and learns from nothing"
    )
    weight_score_old: float = knob(
        0.3,
        "weight of the belief before; raising makes beliefs slower to change and larger, at 1 they would "
        "grow without end; lowering forgets faster",
    )
    weight_transmission: float = knob(
        0.1,
        "worth of a moved model; raising favours nodes that store, lowering makes moving models count less",
    )
    weight_train: float = knob(
        0.5,
        "worth of a finished training; raising lets proven nodes win over newcomers, lowering the reverse",
    )
    weight_delay: float = knob(
        1.0, "price of a second of delay; raising shuns slow links, lowering lets strong but distant nodes in"
    )
    time_score_cap: float = knob(
        10.0,
        "ceiling of what uptime earns; raising favours old nodes for longer, lowering levels them sooner",
    )
    own_policies: tuple[str, ...] = knob(
        (),
        "policies of your own, module:Class with commas between; their code runs with the selector's rights",
    )
    half_life_days: float = knob(
        14.0,
        "days after which evidence counts half; raising trusts old facts for longer, lowering forgets faster",
    )
    evidence_an_hour: int = knob(
        240,
        "facts of one reporter about one node that count in an hour; raising lets a liar move a belief "
        "further, lowering forgets what busy reporters saw",
    )
    survival_horizon_s: float = knob(
        1800.0,
        "seconds that survival looks ahead for jobs that don't say; raising prefers those who stay, "
        "lowering those who are fast",
    )
    survival_loss_s: float = knob(
        30.0,
        "seconds that a member's end is taken to cost its gang, besides lengths of the job; raising gives "
        "smaller, steadier sets, lowering larger, faster ones",
    )
    trial_share: float = knob(
        0.05,
        "part of the selections that try newcomers when few are unknown; raising learns faster, lowering "
        "gives users the proven nodes more often",
    )
    join: str = knob(
        "",
        "what `peerloom token create --role selector` printed: with it this service joins, once; what it "
        "gets lies in the state folder. Empty, and nothing there: plain, on loopback only",
    )
    allow_plain: bool = knob(
        False, "serve without certificates beyond loopback; everybody on that network is then trusted"
    )
    metrics: str = knob("", METRICS_HELP)
    log_level: str = knob("info", "debug, info, warning or error")

    def database_url(self) -> str:
        """Where the database lies."""
        return self.database or f"sqlite:///{self.state}/selector.sqlite"

    def weights(self) -> Weights:
        """The formula's weights. Raises ConfigurationError for one that can't be used."""
        weights = Weights(
            self.weight_score_old,
            self.weight_transmission,
            self.weight_train,
            self.weight_delay,
            self.time_score_cap,
        )
        check_weights(weights)
        return weights

    def half_life_s(self) -> float:
        """How fast evidence fades. Raises ConfigurationError for what is no such time."""
        half_life_s = self.half_life_days * 86_400
        check_half_life(half_life_s)
        return half_life_s

    def policies(self) -> dict[str, Policy]:
        """All policies by name, with the settings in force. Raises ConfigurationError for what can't be."""
        priors = Priors(horizon_s=self.survival_horizon_s, loss_s=self.survival_loss_s)
        trials = Trials(self.trial_share, max(self.trial_share, Trials().share_of_all))
        priors.check()
        trials.check()
        tuned: tuple[Policy, ...] = (
            SurvivalPolicy(priors, trials),
            ThesisFixedPolicy(weights=self.weights(), trials=trials),
        )
        own = [load_policy(path) for path in self.own_policies]
        return {**POLICIES, **{policy.name: policy for policy in (*tuned, *own)}}

    def reporters(self) -> Allowances[tuple[str, str]]:
        """How many facts count of each reporter about each node. Raises ConfigurationError for none."""
        if not 2 <= self.evidence_an_hour <= MAX_EVIDENCE_AN_HOUR:
            raise ConfigurationError(
                f"evidence_an_hour is {self.evidence_an_hour}, but must be 2 to {MAX_EVIDENCE_AN_HOUR:,}."
            )
        return Allowances(reporter_rate(self.evidence_an_hour), MAX_REPORTED)

    def check(self) -> None:
        """Raises InvalidArgumentError for anything that can't be used, before anything starts."""
        self.check_addresses()
        self.half_life_s()
        self.reporters()
        find_policy(self.default_policy, self.policies())

    def check_addresses(self) -> None:
        """Raises InvalidArgumentError for what is no address, or for one that nobody could be sent to."""
        check_addresses("registry", self.registry)
        if self.advertise:
            check_address("advertise", self.advertise)
        elif self.listen.rpartition(":")[0] in _WILDCARDS:
            raise ConfigurationError(
                f"{self.listen} is every address of this machine, so nobody can be sent there: "
                "say with --advertise HOST:PORT at which one others reach it."
            )
