"""Aim: emulated devices and networks are what their names say, by figures made by hand."""

import pytest
from click.testing import CliRunner

from peerloom.cli.main import cli
from peerloom.errors import InvalidArgumentError
from peerloom.experiments.emulated_networks import network_of
from peerloom.experiments.emulation import (
    operations,
    parameters,
    thesis_gpu,
    thesis_step_s,
    training_steps,
)
from peerloom.experiments.workloads import WORKLOADS
from peerloom.worker.tasks.layer_shapes import SHAPES, LayerShape


def test_a_layer_does_six_operations_a_weight_and_position() -> None:
    """A convolution of 3 channels, kernel 5, to 6 channels of 28 x 28 pixels."""
    layer = LayerShape(75, 6, 784)
    assert (layer.parameters, layer.operations) == (456, 6 * 75 * 6 * 784)


def test_the_workloads_have_the_operations_and_parameters_of_their_networks() -> None:
    """MNIST's layers multiply 230,400 + 819,200 + 36,864 + 720 times a sample forward."""
    assert [one.operations // 6 for one in SHAPES["mnist"]] == [230_400, 819_200, 36_864, 720]
    assert [one.operations // 6 for one in SHAPES["cifar10"]] == [352_800, 240_000, 48_000, 10_080, 840]
    assert (operations("mnist"), operations("cifar10")) == (6 * 1_087_184, 6 * 651_720)
    assert (parameters("mnist"), parameters("cifar10")) == (50_914, 62_006)


def test_the_thesis_s_times_give_a_step_of_one_gpu_and_what_each_more_adds() -> None:
    """MNIST: 32.607 s in 2,812.5 steps of 2 GPUs, 26.1995 s in 1,875 of 3; CIFAR-10: 6,250 and 2,500 of 5."""
    mnist, cifar = thesis_step_s(WORKLOADS["mnist"]), thesis_step_s(WORKLOADS["cifar10"])
    assert mnist == pytest.approx((9.2141e-3, 2.3795e-3), rel=1e-4)  # 11.5936 ms and 13.9731 ms
    assert cifar == pytest.approx((3.4215e-3, 1.7071e-3), rel=1e-4)  # 5.1286 ms and 10.2500 ms


def test_one_device_explains_both_workloads() -> None:
    """(9.2141 - 3.4215) ms for 32 * 6,523,104 - 4 * 3,910,320 operations are 33.3 G operations a second."""
    device = thesis_gpu()
    assert device.operations_per_s == pytest.approx(33.335e9, rel=1e-3)
    assert device.step_s == pytest.approx(2.9523e-3, rel=1e-3)
    assert device.compute_s("mnist", 32) == pytest.approx(9.2141e-3, rel=1e-4)
    slow = device.slower(10)
    assert slow.compute_s("cifar10", 4) == pytest.approx(34.215e-3, rel=1e-4)
    assert slow.sample_s("mnist") == pytest.approx(10 * device.sample_s("mnist"))


def test_a_slower_device_with_as_much_less_data_takes_as_long() -> None:
    """60,000 samples thrice in batches of 32 are 5,625 steps, of a tenth of them 562.5."""
    mnist, device = WORKLOADS["mnist"], thesis_gpu()
    assert training_steps(mnist, 32) == 5625
    slow_s = training_steps(mnist, 32, 10) * device.slower(10).compute_s("mnist", 32)
    assert slow_s == pytest.approx(5625 * device.compute_s("mnist", 32))


def test_a_network_s_name_is_its_plan() -> None:
    plan = network_of("wan-100M-5ms").plan((1, 0, 2), nodes=5)
    assert (plan.network.medium, plan.network.nodes, plan.network.mtu_bytes) == ("wan", 5, 9000)
    assert plan.network.default_link.rate_bits_per_s == 100e6
    assert plan.network.default_link.delay_s == 5e-3
    assert [(host.name, host.node, host.slots) for host in plan.hosts] == [
        ("node-1", 1, 1),
        ("node-2", 2, 0),
        ("node-3", 3, 2),
    ]
    assert plan.door is False


@pytest.mark.parametrize("name", ["", "csma", "csma-0M", "lan-100M", "wan-100M-", "csma-100", "csma-1.5G"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="of the form csma-100M or wan-100M-5ms"):
        network_of(name)


def test_a_lan_has_no_delay_to_choose() -> None:
    with pytest.raises(InvalidArgumentError, match="ask for wan-100M-5ms"):
        network_of("csma-100M-5ms")


def test_what_ns3_can_not_carry_is_refused_before_anything_starts() -> None:
    """521 Mbit/s were measured at this MTU."""
    network_of("csma-400M").check((1,) * 8, 9)
    with pytest.raises(InvalidArgumentError, match="Over csma-1G the emulator would be measured"):
        network_of("csma-1G").check((1,) * 8, 9)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--networks", "csma-100M,csma-1G"), "Over csma-1G the emulator would be measured"),
        (("--networks", "csma-100M,csma-100M"), "each once"),
        (("--networks", ","), "one or more"),
        (("--slowdown", "0.5"), "from 1 to 1,000"),
    ],
)
@pytest.mark.parametrize("name", ["network-scaling", "network-heterogeneous"])
def test_what_can_not_be_run_is_refused_before_anything_starts(
    name: str, flags: tuple[str, str], said: str
) -> None:
    if name == "network-heterogeneous" and flags[1] == "csma-100M,csma-1G":
        flags = (flags[0], "csma-1G")  # it takes the first
    done = CliRunner().invoke(cli, ["experiment", name, *flags])
    assert done.exit_code == 2
    assert said in done.output


def test_a_step_is_predicted_from_the_shared_rate() -> None:
    """Two workers send 203,656 bytes each in all, at half of 100 Mbit/s: 32.6 ms, in two rounds."""
    device, network = thesis_gpu().slower(10), network_of("csma-100M")
    alone_s = network.predicted_step_s("mnist", device, 32, 1)
    assert alone_s == pytest.approx(92.141e-3, rel=1e-4)
    two_s = network.predicted_step_s("mnist", device, 32, 2)
    assert alone_s + 32.585e-3 < two_s < alone_s + 32.585e-3 + 2e-3
    # A link of its own for each carries both directions at its whole rate.
    own_s = network_of("wan-100M-1us").predicted_step_s("mnist", device, 32, 2)
    assert alone_s + 16.29e-3 < own_s < alone_s + 16.29e-3 + 2e-3
