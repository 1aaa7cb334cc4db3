"""Predicted rings of the library's of which two are under way: they wait for their trips together."""

from dataclasses import replace

import pytest
from predicted_settings import network, step

from peerloom.kit.sync_model.scheme import SyncScheme


@pytest.mark.parametrize(("waits", "step_s"), [(True, 12 + 12), (False, 3 * 9)])
def test_gloo_has_two_rings_under_way_and_others_one(waits: bool, step_s: float) -> None:
    """Three buckets of 4 MB, 0.5 s a trip. A ring of gloo's takes 6 round trips and 6 s of the links.

    While two wait for their trips each other's messages leave: both end after 12 s, then comes the third.
    """
    net = replace(network(delay_s=0.5), library_waits=waits)
    scheme = SyncScheme(after_backward=True, merge_bytes=1)
    assert step(scheme, net, 4, 4, 4).step_s == pytest.approx(step_s)


def test_two_rings_share_what_links_carry() -> None:
    """Almost without delays two rings take as long as one after the other: 6 s each."""
    scheme = SyncScheme(after_backward=True, merge_bytes=1)
    assert step(scheme, network(delay_s=1e-6), 4, 4).step_s == pytest.approx(12, abs=1e-4)
