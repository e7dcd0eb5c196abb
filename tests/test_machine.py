"""Names of machines: one card is one machine, and what an update changes names nothing."""

from __future__ import annotations

import dataclasses

import pytest

from harness.device.backends import null
from harness.device.machine import ANNOTATIONS, describe_host, machine_entry, machine_name
from harness.records.types import Host

UUID = "GPU-3f2a9c1e-0a1b-2c3d-4e5f-a0b1c2d3e4f5"
HOST = Host(os="Linux", kernel="6.1", cpu="Some CPU", cpu_count=8, memory_bytes=2**30, python="3.12.1")
CARD = dataclasses.replace(
    null.devices()[0],
    spec="cuda:0",
    backend="cuda",
    name="NVIDIA GeForce RTX 4090",
    kind="gpu",
    uuid=UUID,
    compute_capability=(8, 9),
    memory_bytes=24 * 2**30,
    driver="570.1",
)


@pytest.fixture(autouse=True)
def node(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "My-Host.example.org")


def card(**changes):
    return dataclasses.replace(CARD, **changes)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        pytest.param(card(), "nvidia-geforce-rtx-4090-c2d3e4f5", id="a card"),
        pytest.param(card(backend="opencl"), "opencl-nvidia-geforce-rtx-4090-c2d3e4f5", id="by OpenCL"),
        pytest.param(card(uuid=None), "nvidia-geforce-rtx-4090-my-host-example-org", id="without a UUID"),
        pytest.param(
            card(backend="opencl", kind="cpu", name="Intel(R) Core(TM) i7-1185G7 @ 3.00GHz"),
            "opencl-intel-core-i7-1185g7-3-00ghz-my-host-example-org",
            id="a CPU",
        ),
        pytest.param(null.devices()[0], "null", id="the null device"),
    ],
)
def test_a_machines_name(device, name):
    assert machine_name(device) == name


def test_two_cards_of_a_model_are_two_machines():
    assert machine_name(card()) != machine_name(card(uuid=UUID[:-1] + "0"))


@pytest.mark.parametrize(
    "changes",
    [{"spec": "cuda:3"}, {"driver": "999"}, {"arch": "x"}, {"pci_bus_id": "y"}, {"uuid": UUID.upper()}],
    ids=str,
)
def test_a_card_keeps_its_name(changes):
    assert machine_name(card(**changes)) == machine_name(card())


def test_a_card_keeps_its_name_in_another_host(monkeypatch):
    before = machine_name(card())
    monkeypatch.setattr("platform.node", lambda: "other")
    assert machine_name(card()) == before


@pytest.mark.parametrize("name", ["", "!!!", "a/b\\c:d", "é", "x" * 300])
def test_a_name_is_fit_for_a_file(name):
    made = machine_name(card(name=name))
    assert made
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert made == made.strip("-")


def test_an_entry_is_what_asv_keeps():
    entry = machine_entry(CARD, HOST)
    assert all(isinstance(value, str) for value in entry.values())
    # asv asks about its own six keys where one is missing.
    assert {"machine", "os", "arch", "cpu", "num_cpu", "ram"} <= set(entry)
    assert entry["machine"] == machine_name(CARD)
    assert (entry["num_cpu"], entry["ram"], entry["gpu_memory"]) == ("8", "1 GiB", "24 GiB")
    assert (entry["gpu"], entry["gpu_uuid"], entry["compute_capability"]) == (CARD.name, UUID, "8.9")


def test_an_entry_of_a_cpu():
    entry = machine_entry(card(uuid=None, compute_capability=None), HOST)
    assert (entry["gpu_uuid"], entry["compute_capability"]) == ("unknown", "none")


def test_an_update_or_another_host_changes_annotations_only():
    before = machine_entry(CARD, HOST)
    after = machine_entry(
        card(driver="580", memory_bytes=2**40),
        dataclasses.replace(
            HOST,
            kernel="6.2",
            cpu="another",
            cpu_count=1000,
            memory_bytes=2**50,
            python="3.14",
            packages={"a": "1"},
        ),
    )
    assert {key for key in before if before[key] != after[key]} == set(ANNOTATIONS)


def test_this_host_can_be_described():
    host = describe_host()
    assert host.os
    assert host.cpu
    assert host.cpu_count
    assert host.memory_bytes
    assert "numpy" in host.packages
    assert all(host.packages.values())
