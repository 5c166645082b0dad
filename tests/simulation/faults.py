# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with machines: the network, API servers, operators, nodes and containers. People are in `people`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from elasticjob_operator.objects.pods import SIDECAR
from simulation.network import Weather
from simulation.nodes import Node
from simulation.operators import Operator
from simulation.pods import PodRun
from simulation.world import World

Fault = Callable[[World], Awaitable[None]]

STORM = Weather(lost=0.04, unanswered=0.04, late=0.02, reset=0.04, errors=0.05, silent_watch=0.01, broken_watch=0.02)


async def storm(world: World) -> None:
    """Requests, answers and watches are lost here and there."""
    world.say("weather", "storm")
    strength, weather = world.dice.random(), world.weather
    for name in ("lost", "unanswered", "late", "reset", "errors", "silent_watch", "broken_watch"):
        setattr(weather, name, strength * getattr(STORM, name))
    weather.slowest = world.dice.choice((0.05, 0.5, 2.0))
    await asyncio.sleep(world.dice.uniform(5, 40))
    clear(weather)
    world.say("weather", "clear")


def clear(weather: Weather) -> None:
    for name in Weather.__slots__:
        setattr(weather, name, getattr(Weather(), name))


async def server_down(world: World) -> None:
    """The API server is away for a while."""
    world.say("API server", "is down")
    world.server.down = True
    world.server.break_watches()
    await asyncio.sleep(world.dice.choice((0.5, 3.0, 12.0, 25.0)))
    world.server.down = False
    world.say("API server", "is back")


async def watches_lag(world: World) -> None:
    world.server.lag = world.dice.choice((0.3, 2.0, 8.0))
    world.say("API server", "watches lag", f"{world.server.lag} s")
    await asyncio.sleep(world.dice.uniform(5, 30))
    world.server.lag = 0.0


async def history_forgotten(world: World) -> None:
    world.say("API server", "forgets its history")
    world.server.store.forget_history()
    if world.dice.random() < 0.7:
        world.server.break_watches()


async def operator_killed(world: World) -> None:
    if operator := _operator(world):
        world.say(operator.identity, "is killed")
        operator.process.kill()


async def operator_stopped(world: World) -> None:
    """SIGTERM: it gives its Lease back."""
    if operator := _operator(world):
        world.say(operator.identity, "is told to stop")
        operator.stop()


async def operator_frozen(world: World) -> None:
    if operator := _operator(world):
        world.say(operator.identity, "is frozen")
        operator.process.freeze()
        await asyncio.sleep(world.dice.choice((0.5, 4.0, 7.0, 9.5, 12.0, 20.0)))
        operator.process.thaw()
        world.say(operator.identity, "is thawed")


async def operator_cut_off(world: World) -> None:
    if operator := _operator(world):
        world.say(operator.identity, "is cut off")
        operator.network.partition()
        await asyncio.sleep(world.dice.choice((1.0, 6.0, 9.0, 15.0, 30.0)))
        operator.network.heal()
        world.say(operator.identity, "is connected again")


async def node_dies(world: World) -> None:
    if node := _node(world):
        world.say(node.name, "dies")
        world.nodes.kill_node(node)
        await asyncio.sleep(world.dice.choice((3.0, 20.0, 100.0)))
        world.nodes.revive_node(node)
        world.say(node.name, "is back")


async def node_rejects(world: World) -> None:
    """Its kubelet admits no new pod, as with a device plug-in that is not back after the node's restart."""
    if node := _node(world):
        world.say(node.name, "rejects pods")
        node.rejects = True
        await asyncio.sleep(world.dice.choice((3.0, 20.0, 60.0)))
        node.rejects = False


async def node_cut_off(world: World) -> None:
    if node := _node(world):
        world.say(node.name, "is cut off")
        world.nodes.cut_node(node)
        await asyncio.sleep(world.dice.choice((3.0, 12.0, 25.0, 90.0)))
        world.nodes.heal_node(node)
        world.say(node.name, "is connected again")


async def pod_cut_off(world: World) -> None:
    if run := _run(world):
        world.say(run.place[1], "is cut off")
        run.sandbox.network.partition()
        await asyncio.sleep(world.dice.choice((2.0, 8.0, 20.0, 40.0)))
        run.sandbox.network.heal()


async def link_cut(world: World) -> None:
    """Between two pods, both of which the API server hears; it lasts until the suspicion is an old one."""
    one, other = _run(world), _run(world)
    if one and other and one is not other:
        world.say(one.place[1], "no packet passes to or from", other.place[1])
        one.sandbox.network.parted.add(other.sandbox.ip)
        await asyncio.sleep(world.dice.choice((2.0, 15.0, 40.0)))
        one.sandbox.network.parted.discard(other.sandbox.ip)
        world.say(one.place[1], "packets pass again to and from", other.place[1])


async def container_killed(world: World) -> None:
    """By the kernel, for its memory or for no reason."""
    if run := _run(world):
        name = world.dice.choice(list(run.containers))
        world.say(run.place[1], "a container is killed", name)
        run.containers[name].kill()


async def container_frozen(world: World) -> None:
    if run := _run(world):
        name = world.dice.choice([one for one in run.containers if one in (SIDECAR, "trainer")] or list(run.containers))
        process = run.containers[name].process
        world.say(process.name, "is frozen")
        process.freeze()
        await asyncio.sleep(world.dice.choice((1.0, 6.0, 18.0, 40.0)))
        process.thaw()
        world.say(process.name, "is thawed")


async def cluster_slow(world: World) -> None:
    """Whatever kubelets and the scheduler do takes longer."""
    world.nodes.slowness = world.dice.choice((3.0, 10.0, 30.0))
    world.say("cluster", "is slow", str(world.nodes.slowness))
    await asyncio.sleep(world.dice.uniform(5, 30))
    world.nodes.slowness = 1.0


async def no_scheduler(world: World) -> None:
    world.nodes.scheduling = False
    world.say("scheduler", "is away")
    await asyncio.sleep(world.dice.uniform(3, 30))
    world.nodes.scheduling = True


async def garbage_waits(world: World) -> None:
    world.garbage.slowest = world.dice.choice((10.0, 40.0))
    world.say("garbage collector", "is slow")
    await asyncio.sleep(world.dice.uniform(10, 60))
    world.garbage.slowest = 2.0


FAULTS: dict[Fault, int] = {  # and how often, beside the others
    storm: 8,
    server_down: 3,
    watches_lag: 4,
    history_forgotten: 3,
    operator_killed: 4,
    operator_stopped: 2,
    operator_frozen: 5,
    operator_cut_off: 4,
    node_dies: 3,
    node_cut_off: 3,
    pod_cut_off: 4,
    container_killed: 6,
    container_frozen: 4,
    cluster_slow: 2,
    no_scheduler: 1,
    garbage_waits: 2,
}


def _operator(world: World) -> Operator | None:
    """The leader, mostly."""
    alive = [one for one in world.operators if one.process.runs]
    lease = world.server.get("leases", "ops", "elasticjob-operator")
    holder = lease["spec"].get("holderIdentity") if lease else ""
    leaders = [one for one in alive if one.identity == holder]
    return world.dice.choice(leaders if leaders and world.dice.random() < 0.8 else alive) if alive else None


def _node(world: World) -> Node | None:
    whole = [node for node in world.nodes.all if node.alive and not node.cut]
    return world.dice.choice(whole) if whole else None


def _run(world: World) -> PodRun | None:
    runs = [run for node in world.nodes.all for run in node.pods.values() if run.containers and not run.stopping]
    return world.dice.choice(runs) if runs else None


def all_is_well(world: World) -> Any:
    """No fault goes on, and there is room for everybody."""
    clear(world.weather)
    world.server.down, world.server.lag = False, 0.0
    world.nodes.slowness, world.nodes.scheduling, world.garbage.slowest = 1.0, True, 2.0
    admission = world.server.admission
    admission.quota, admission.denies, admission.hangs = None, False, False
    for operator in world.operators:
        operator.process.thaw()
        operator.network.heal()
    for node in world.nodes.all:
        world.nodes.cordon(node, cordoned=False)
        node.capacity += 20
        node.rejects = False
        if node.cut:
            world.nodes.heal_node(node)
        if not node.alive:
            world.nodes.revive_node(node)
        for run in node.pods.values():
            run.sandbox.network.heal()
            for container in run.containers.values():
                container.process.thaw()
