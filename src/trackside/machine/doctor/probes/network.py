"""Probes of the fabric between nodes, and of the variables by which NCCL chooses its ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.driver import find_nccl, library_folders, version
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.system import System, Unreadable

_CARDS = "sys/class/infiniband"
_INFINIBAND, _ETHERNET = "InfiniBand", "Ethernet"
_NO_CARD = "no InfiniBand or RoCE card here"

# On average since boot. A good link has none for days; a plugged cable or a neighbour's reboot makes few.
_ERRORS_AN_HOUR = 10.0
_ERROR_COUNTERS = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
)
# RoCE packets of 4,096 bytes and the headers that the kernel reserves for them (iboe_get_mtu).
_ROCE_MTU = 4096 + 96
# NCCL's own default since 2.23: 4.096 µs × 2^20 for each of seven retries, half a minute in all.
_IB_TIMEOUT = 20
_IB_TIMEOUT_DEFAULTS = (((2, 23), 20), ((2, 14), 18), ((0,), 14))
_FOREVER = 32
# NCCL picks the GID index by itself from here on.
_GID_BY_ITSELF = (2, 21)
# NCCL's limit on threads × sockets for a connection.
_MOST_SOCKETS = 64
# The first architecture whose NVSwitch adds up: Hopper.
_HOPPER = (9, 0)
# Amazon's and Google's cards, for which NCCL opens more sockets by itself.
_CLOUD_CARDS = ("0x1d0f", "0x1ae0")

_SWITCHED_OFF = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE")
_FORCED = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_P2P_LEVEL",
    "NCCL_NET_GDR_LEVEL",
)
_CHECKS = (
    "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_CHECK_POINTERS",
    "NCCL_CHECK_MODE",
)
_OFF = ("", "0", "false", "off", "no")
# Interfaces that do not connect nodes.
_LOCAL = re.compile(r"lo$|docker|veth|virbr|br-|cni|flannel|cali|cilium|lxc|tunl|dummy|ifb|bonding_masters")


@dataclass(frozen=True)
class _Port:
    card: str
    number: str
    state: str
    """`4: ACTIVE`"""
    physical: str
    """`5: LinkUp`"""
    rate: str
    """`400 Gb/sec (4X NDR)`"""
    layer: str
    """`InfiniBand`, or `Ethernet` for RoCE."""

    @property
    def name(self) -> str:
        return f"{self.card}:{self.number}"

    @property
    def folder(self) -> str:
        return f"{_CARDS}/{self.card}/ports/{self.number}"

    @property
    def active(self) -> bool:
        return self.state.endswith("ACTIVE")

    @property
    def gigabits(self) -> float:
        found = re.match(r"[\d.]+", self.rate)
        return float(found[0]) if found else 0.0


def _ports(system: System) -> list[_Port]:
    found = []
    for card in system.names(_CARDS):
        for number in system.names(f"{_CARDS}/{card}/ports"):
            folder = f"{_CARDS}/{card}/ports/{number}"
            told = [system.text(f"{folder}/{name}") for name in ("state", "phys_state", "rate", "link_layer")]
            found.append(_Port(card, number, *told))
    return found


def _roce(system: System) -> list[_Port]:
    return [port for port in _ports(system) if port.layer == _ETHERNET and port.active]


def _variables(system: System) -> Mapping[str, str]:
    """The environment, and below it what NCCL reads from its files."""
    environment = system.environment
    files = ["etc/nccl.conf"]
    own = environment.get("NCCL_CONF_FILE") or f"{environment.get('HOME', '')}/.nccl.conf"
    if own.startswith("/") and own != "/.nccl.conf":
        files.append(own.lstrip("/"))
    found: dict[str, str] = {}
    for path in files:
        try:
            lines = system.lines(path)
        except Unreadable:
            continue
        rows = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
        found |= {name.strip(): value.strip() for name, _, value in rows}
    return {**found, **environment}


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() not in _OFF


def _nodes(system: System) -> int:
    """Of the job that this shell belongs to, as the batch system tells."""
    told = [system.environment.get(name, "") for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")]
    return max((int(text) for text in told if text.isdigit()), default=1)


def _alone(system: System) -> Outcome | None:
    """Why NCCL's choices do not matter here."""
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2 and not system.names(_CARDS) and _nodes(system) < 2:
        return not_applicable("one GPU, no RDMA card and no job over several nodes")
    return None


@probe("network.ib-port-state")
def ib_port_state(system: System) -> Outcome:
    ports = _ports(system)
    if not ports:
        return not_applicable(_NO_CARD)
    wanted = "every port ACTIVE, all of a kind at one rate"
    down = [port for port in ports if not port.active]
    best = {
        layer: max(port.gigabits for port in ports if port.active and port.layer == layer)
        for layer in {port.layer for port in ports if port.active}
    }
    slow = [port for port in ports if port.active and port.gigabits < best[port.layer]]
    bad = [f"{port.name} is {port.state} ({port.physical})" for port in down]
    bad += [f"{port.name} has {port.rate} where others have {best[port.layer]:g}" for port in slow]
    if not bad:
        return passes(f"{len(ports)} ports ACTIVE, {', '.join(sorted({p.rate for p in ports}))}", wanted)
    cards = ",".join(port.name for port in (*down, *slow))
    if not best:
        return fails(few(bad), wanted, [f"sudo mlxlink -d {ports[0].card}"])
    fix = [
        f"sudo mlxlink -d {(*down, *slow)[0].card}",
        f"export NCCL_IB_HCA=^={cards}   # until it is repaired",
    ]
    return warns(few(bad), wanted, fix)


@probe("network.link-errors")
def link_errors(system: System) -> Outcome:
    ports = [port for port in _ports(system) if port.active]
    if not ports:
        return not_applicable("no active InfiniBand or RoCE port here")
    running = re.match(r"\d+", system.text("proc/uptime"))
    if not running:
        return unknown("/proc/uptime: no number")
    hours = int(running[0]) / 3600
    bad, read = [], 0
    for port in ports:
        for counter in _ERROR_COUNTERS:
            try:
                count = system.number(f"{port.folder}/{counter}")
            except Unreadable:
                continue
            read += 1
            if count > _ERRORS_AN_HOUR * max(hours, 1):
                bad.append(f"{port.name} {counter.partition('/')[2]}: {count:,} in {hours:,.0f} h")
    wanted = f"fewer than {_ERRORS_AN_HOUR:g} an hour, and no growth under load"
    if bad:
        folder = f"/{_CARDS}/{ports[0].card}/ports/{ports[0].number}"
        return warns(
            few(bad), wanted, [f"grep -H . {folder}/counters/*err* {folder}/hw_counters/*err*   # twice"]
        )
    if not read:
        return unknown("no error counter of any port can be read")
    return passes(f"{read} counters of {len(ports)} ports", wanted)


@probe("network.transport-in-use")
def transport_in_use(system: System) -> Outcome:
    ports = [port for port in _ports(system) if port.active]
    if not ports:
        return not_applicable("no active InfiniBand or RoCE port here")
    network = _variables(system).get("NCCL_NET", "")
    wanted = "RDMA, and a failure where it cannot be had"
    if network.lower() == "socket":
        return fails("NCCL_NET=Socket forces TCP beside active RDMA ports", wanted, ["unset NCCL_NET"])
    if network:
        return passes(f"NCCL_NET={network}: NCCL fails rather than fall back to TCP", wanted)
    return unknown(
        "NCCL chooses at its start; only its log with NCCL_DEBUG=INFO tells (NET/IB or NET/Socket)"
    )


@probe("network.forced-variables")
def forced_variables(system: System) -> Outcome:
    alone = _alone(system)
    if alone:
        return alone
    variables = _variables(system)
    off = [name for name in _SWITCHED_OFF if _is_on(variables.get(name))]
    forced = [name for name in _FORCED if variables.get(name)]
    wanted = "none of them set without a known reason"
    if not off and not forced:
        return passes(f"none of {len(_SWITCHED_OFF) + len(_FORCED)} variables is set", wanted)
    names = off + forced
    gpus = find_gpus(system)
    linked = not isinstance(gpus, Outcome) and any(
        link["active"] for gpu in gpus for link in gpu.get("links") or []
    )
    costly = ("NCCL_P2P_DISABLE" in off and linked) or (
        "NCCL_IB_DISABLE" in off and any(port.active for port in _ports(system))
    )
    found = few((f"{name}={variables[name]}" for name in names), 6)
    return (fails if costly else warns)(found, wanted, [f"unset {' '.join(names)}"])


@dataclass(frozen=True)
class _Filter:
    """NCCL's list of names: prefixes, or with an equals sign exact; with a caret those to leave out."""

    names: tuple[str, ...]
    exact: bool
    excludes: bool

    @classmethod
    def read(cls, text: str) -> _Filter:
        rest = text.removeprefix("^").removeprefix("=")
        names = tuple(name.partition(":")[0] for name in rest.split(",") if name)
        return cls(names, text.removeprefix("^").startswith("="), text.startswith("^"))

    def hits(self, name: str, there: list[str]) -> list[str]:
        return [one for one in there if one == name or (not self.exact and one.startswith(name))]

    def chosen(self, there: list[str]) -> list[str]:
        hit = {one for name in self.names for one in self.hits(name, there)}
        return [one for one in there if (one in hit) != self.excludes]


@probe("network.ib-hca-filter")
def ib_hca_filter(system: System) -> Outcome:
    ports = _ports(system)
    if not ports:
        return not_applicable(_NO_CARD)
    cards = sorted({port.card for port in ports})
    text = _variables(system).get("NCCL_IB_HCA", "")
    wanted = "cards of one kind, or an exact list of those of the compute fabric"
    if not text:
        layers = sorted({port.layer for port in ports if port.active})
        if len(layers) > 1:
            named = few(f"{port.card} {port.layer}" for port in ports if port.active)
            return warns(f"NCCL_IB_HCA is unset, and the cards differ: {named}", wanted)
        return passes(f"unset, {len(cards)} cards of one kind", wanted)
    chosen = _Filter.read(text)
    if not chosen.chosen(cards):
        return fails(f"NCCL_IB_HCA={text} leaves none of {few(cards)}", wanted, ["unset NCCL_IB_HCA"])
    absent = [name for name in chosen.names if not chosen.hits(name, cards)]
    if absent:
        return warns(f"NCCL_IB_HCA={text}: there is no {few(absent)}", wanted)
    # A prefix such as mlx5 is meant for all; one that is itself a card's name is not.
    wide = [name for name in chosen.names if name in cards and len(chosen.hits(name, cards)) > 1]
    if wide:
        hit = few(chosen.hits(wide[0], cards))
        caret = "^" if chosen.excludes else ""
        fix = [f"export NCCL_IB_HCA={caret}={','.join(chosen.names)}"]
        return warns(f"NCCL_IB_HCA={text} also takes what begins alike: {hit}", wanted, fix)
    return passes(f"{text}: {few(chosen.chosen(cards))}", wanted)


@probe("network.socket-interface")
def socket_interface(system: System) -> Outcome:
    variables = _variables(system)
    there = system.names("sys/class/net")
    nccl, gloo = variables.get("NCCL_SOCKET_IFNAME", ""), variables.get("GLOO_SOCKET_IFNAME", "")
    wanted = "an interface that exists and reaches the other nodes"
    if nccl and not _Filter.read(nccl).chosen(there):
        found = f"NCCL_SOCKET_IFNAME={nccl} fits none of {few(there)}"
        return fails(found, wanted, ["unset NCCL_SOCKET_IFNAME"])
    absent = [name for name in gloo.split(",") if name and name not in there]
    if absent:
        found = f"GLOO_SOCKET_IFNAME={gloo}: there is no {few(absent)}, but {few(there)}"
        return fails(found, wanted, ["unset GLOO_SOCKET_IFNAME"])
    if nccl:
        return passes(f"{nccl}: {few(_Filter.read(nccl).chosen(there))}", wanted)
    if _nodes(system) < 2:
        return not_applicable("no sign of a job over several nodes")
    candidates = [name for name in there if not _LOCAL.match(name)]
    if len(candidates) > 1:
        found = f"unset, and NCCL picks among {few(candidates)}"
        fix = [
            f"export NCCL_SOCKET_IFNAME=={candidates[0]} GLOO_SOCKET_IFNAME={candidates[0]}   # the right one"
        ]
        return warns(found, wanted, fix)
    return passes(f"unset, only {few(candidates) or 'the loopback'}", wanted)


@probe("network.nvls")
def nvls(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    able = [
        gpu
        for gpu in gpus
        if version(str(gpu.get("compute_capability", ""))) >= _HOPPER
        and any(link["active"] for link in gpu.get("links") or [])
    ]
    if len(able) < 2:
        return not_applicable("no two GPUs of Hopper or newer with active NVLinks")
    value = _variables(system).get("NCCL_NVLS_ENABLE")
    wanted = "unset, or not 0"
    if value == "0":
        return warns("NCCL_NVLS_ENABLE=0", wanted, ["unset NCCL_NVLS_ENABLE"])
    return passes("unset" if value is None else f"NCCL_NVLS_ENABLE={value}", wanted)


@probe("network.sharp")
def sharp(system: System) -> Outcome:
    if not any(port.layer == _INFINIBAND and port.active for port in _ports(system)):
        return not_applicable("no active InfiniBand port here")
    enabled = _variables(system).get("NCCL_COLLNET_ENABLE") == "1"
    plugins = [
        folder
        for folder in library_folders(system)
        if "sharp" in folder and any(n.startswith("libnccl-net") for n in system.names(folder.lstrip("/")))
    ]
    wanted = "the plugin and NCCL_COLLNET_ENABLE=1, or neither"
    if enabled and plugins:
        return passes(f"on, plugin in {plugins[0]}", wanted)
    if enabled:
        fix = ["export LD_LIBRARY_PATH=$HPCX_HOME/nccl_rdma_sharp_plugin/lib:$LD_LIBRARY_PATH"]
        return warns("NCCL_COLLNET_ENABLE=1, and no SHARP plugin in LD_LIBRARY_PATH", wanted, fix)
    if plugins:
        return warns(f"plugin in {plugins[0]}, and NCCL_COLLNET_ENABLE is not 1", wanted)
    return not_applicable("no SHARP plugin in LD_LIBRARY_PATH")


@probe("network.pxn")
def pxn(system: System) -> Outcome:
    if not system.names(_CARDS):
        return not_applicable(_NO_CARD)
    alone = _alone(system)
    if alone:
        return alone
    variables = _variables(system)
    defaults = {"NCCL_PXN_DISABLE": "0", "NCCL_P2P_PXN_LEVEL": "2"}
    changed = [name for name, value in defaults.items() if variables.get(name, value) != value]
    wanted = "unset, or 0 and 2"
    if changed:
        found = ", ".join(f"{name}={variables[name]}" for name in changed)
        return warns(found, wanted, [f"unset {' '.join(changed)}"])
    return passes("as by default", wanted)


@probe("network.adaptive-routing")
def adaptive_routing(system: System) -> Outcome:
    if not any(port.layer == _INFINIBAND and port.active for port in _ports(system)):
        return not_applicable("no active InfiniBand port here; on RoCE the operator has to say")
    variables = _variables(system)
    level = variables.get("NCCL_IB_SL", "0")
    wanted = "on, with the operator's service level"
    if variables.get("NCCL_IB_ADAPTIVE_ROUTING") == "0":
        return warns("NCCL_IB_ADAPTIVE_ROUTING=0", wanted, ["unset NCCL_IB_ADAPTIVE_ROUTING"])
    return passes(f"on, service level {level}", wanted)


@probe("network.qps")
def queue_pairs(system: System) -> Outcome:
    ports = _roce(system)
    if not ports:
        return not_applicable("no active RoCE port here")
    value = _variables(system).get("NCCL_IB_QPS_PER_CONNECTION", "1")
    wanted = "2 to 8, where the fabric has more than one switch level"
    if value.isdigit() and int(value) > 1:
        return passes(value, wanted)
    return warns(f"{value} queue pair per connection on {len(ports)} RoCE ports", wanted)


def _nccl(system: System) -> tuple[int, ...]:
    return max((version(number) for number in find_nccl(system).values()), default=())


@probe("network.roce-gid")
def roce_gid(system: System) -> Outcome:
    if not _roce(system):
        return not_applicable("no active RoCE port here")
    index, number = _variables(system).get("NCCL_IB_GID_INDEX", "-1"), _nccl(system)
    if not number:
        return unknown("NCCL's version: no package of it is installed beside Trackside")
    named = f"NCCL {'.'.join(map(str, number))}"
    if number < _GID_BY_ITSELF:
        wanted = "the index of the RoCE v2 entry, before NCCL 2.21"
        if index == "-1":
            return warns(f"NCCL_IB_GID_INDEX is unset with {named}", wanted, ["show_gids | grep v2"])
        return passes(f"{index} with {named}", wanted)
    wanted = "unset from NCCL 2.21 on"
    if index == "-1":
        return passes(f"unset with {named}", wanted)
    return warns(f"NCCL_IB_GID_INDEX={index} with {named}", wanted, ["unset NCCL_IB_GID_INDEX"])


@probe("network.roce-congestion")
def roce_congestion(system: System) -> Outcome:
    ports = _roce(system)
    if not ports:
        return not_applicable("no active RoCE port here")
    value = _variables(system).get("NCCL_IB_TC", "0")
    wanted = "the traffic class that the fabric's operator keeps lossless"
    if value.isdigit() and int(value):
        return passes(f"traffic class {value} (DSCP {int(value) >> 2})", wanted)
    return warns(f"traffic class {value} (best effort) on {len(ports)} RoCE ports", wanted)


@probe("network.mtu")
def mtu(system: System) -> Outcome:
    ports = _roce(system)
    if not ports:
        return not_applicable("no active RoCE port here")
    sizes = {}
    for port in ports:
        interface = system.text(f"{port.folder}/gid_attrs/ndevs/0")
        sizes[interface] = system.number(f"sys/class/net/{interface}/mtu")
    wanted = f"at least {_ROCE_MTU:,}, so that packets carry 4,096 bytes"
    small = [interface for interface, size in sizes.items() if size < _ROCE_MTU]
    if small:
        fix = [f"sudo ip link set dev {interface} mtu 9000" for interface in small]
        return warns(few(f"{interface}: {sizes[interface]:,}" for interface in small), wanted, fix)
    return passes(few(f"{interface}: {size:,}" for interface, size in sizes.items()), wanted)


@probe("network.socket-threads")
def socket_threads(system: System) -> Outcome:
    if any(port.active for port in _ports(system)):
        return not_applicable("RDMA ports are active")
    if _nodes(system) < 2:
        return not_applicable("no sign of a job over several nodes")
    variables = _variables(system)
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    given = [variables.get(name, "") for name in names]
    threads, sockets = (int(text) if text.isdigit() else 1 for text in given)
    wanted = f"4 threads of 4 sockets for 100 Gbit/s, at most {_MOST_SOCKETS} sockets in all"
    fix = ["export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4"]
    if threads * sockets > _MOST_SOCKETS:
        return warns(f"{threads} threads of {sockets} sockets: more than NCCL allows", wanted, fix)
    if threads * sockets > 1:
        return passes(f"{threads} threads of {sockets} sockets", wanted)
    for name in system.names("sys/class/net"):
        try:
            if system.text(f"sys/class/net/{name}/device/vendor") in _CLOUD_CARDS:
                return passes(f"unset, and NCCL opens more by itself for {name}", wanted)
        except Unreadable:
            continue
    return warns("1 thread of 1 socket, and no RDMA", wanted, fix)


@probe("network.ib-timeout")
def ib_timeout(system: System) -> Outcome:
    if not system.names(_CARDS):
        return not_applicable(_NO_CARD)
    text, number = _variables(system).get("NCCL_IB_TIMEOUT", ""), _nccl(system)
    wanted = f"{_IB_TIMEOUT} to {_FOREVER - 1}"
    if text.isdigit():
        value, named = int(text), f"NCCL_IB_TIMEOUT={text}"
    elif number:
        value = next(default for since, default in _IB_TIMEOUT_DEFAULTS if number >= since)
        named = f"{value}, the default of NCCL {'.'.join(map(str, number))}"
    else:
        return unknown("unset, and no NCCL package is installed beside Trackside that tells the default")
    if _IB_TIMEOUT <= value < _FOREVER:
        return passes(named, wanted)
    return warns(named, wanted, ["export NCCL_IB_TIMEOUT=22"])


@probe("network.name-resolution")
def name_resolution(system: System) -> Outcome:
    if _nodes(system) < 2:
        return not_applicable("no sign of a job over several nodes")
    host = system.text("proc/sys/kernel/hostname")
    rows = [line.partition("#")[0].split() for line in system.lines("etc/hosts")]
    addresses = [row[0] for row in rows if host in row[1:]]
    wanted = "an address of the cluster network for the own name"
    local = [address for address in addresses if address.startswith("127.") or address == "::1"]
    if local:
        fix = [f"in /etc/hosts, give {host} the address that the other nodes use, in place of {local[0]}"]
        return warns(f"/etc/hosts gives the own name the loopback address {local[0]}", wanted, fix)
    if addresses:
        return passes(addresses[0], wanted)
    return unknown("the own name is not in /etc/hosts, so DNS decides: time getent hosts $(hostname)")


@probe("network.debug-checks")
def debug_checks(system: System) -> Outcome:
    alone = _alone(system)
    if alone:
        return alone
    variables = _variables(system)
    on = [name for name in _CHECKS if _is_on(variables.get(name))]
    if variables.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        on.append("TORCH_DISTRIBUTED_DEBUG")
    if variables.get("NCCL_DEBUG", "").upper() == "TRACE":
        on.append("NCCL_DEBUG")
    wanted = "none of the checks on"
    if on:
        return warns(few((f"{name}={variables[name]}" for name in on), 6), wanted, [f"unset {' '.join(on)}"])
    return passes(f"none of {len(_CHECKS) + 2} is on", wanted)
