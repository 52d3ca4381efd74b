"""A recurrent network that reads all items, then chooses a device for each: encoder, decoder with attention, gradient.

    encoder   LSTM over the items, in the order of placement: one state per item
    decoder   LSTM that begins in the encoder's last state; at item t it reads the encoder's state t and the device of
              item t - 1; softmax over devices with room of tanh(its state, attention over the encoder's states)

All in NumPy, because the network of one problem is small. The gradient is that of the summed log probabilities of the
drawn devices, each episode weighted by its advantage (REINFORCE), plus a small entropy term. A test compares it with
finite differences.

Legend: E episodes, N items, D devices, x features of an item, H hidden units.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recsmith.planners.placing import Episodes, ItemBatch
from recsmith_per_problem.arrays import Bools, Floats, Ints

HIDDEN = 32  # H: enough for one task; trade-off: 64 take twice the time
SPREAD = 0.1  # standard deviation of the initial weights: the initial policy is nearly uniform
NEVER = -1e30  # logit of a device without room
Tensors = dict[str, Floats]


class LstmStep(NamedTuple):
    """What the gradient of a step needs: gates i, f, o, g, the cell before, and tanh of the cell after."""

    gates: Floats  # (..., 4, H)
    before: Floats
    bent: Floats


@dataclass(frozen=True)
class DrawnEpisodes:
    """Drawn episodes. target (E, N), dead (E,); the other fields are what their gradient needs, step by step."""

    target: Ints
    dead: Bools
    encoded: Floats = field(repr=False)  # (N, H)
    encoder: list[LstmStep] = field(repr=False)
    decoder: list[LstmStep] = field(repr=False)
    hidden: Floats = field(repr=False)  # (N + 1, E, H): states of the decoder, the first before any item
    attention: Floats = field(repr=False)  # (N, E, N)
    joined: Floats = field(repr=False)  # (N, E, H)
    chance: Floats = field(repr=False)  # (N, E, D)


def first_tensors(features: int, devices: int, random: np.random.Generator) -> Tensors:
    """Initial weights."""
    shapes = {
        "encoder": (features + HIDDEN + 1, 4 * HIDDEN), "decoder": (2 * HIDDEN + 1, 4 * HIDDEN),
        "device": (devices + 1, 4 * HIDDEN), "attention": (HIDDEN, HIDDEN), "joined": (2 * HIDDEN + 1, HIDDEN),
        "score": (HIDDEN + 1, devices),
    }  # fmt: skip
    return {name: random.normal(0.0, SPREAD, shape) for name, shape in shapes.items()}


# --- forward --------------------------------------------------------------------------------------------------------


def draw(
    tensors: Tensors, features: Floats, items: ItemBatch, count: int, random: np.random.Generator
) -> DrawnEpisodes:
    """Place ordered items with features (N, x) in `count` episodes; each device is drawn by its probability."""
    encoded, encoder, state, cell = _encode(tensors["encoder"], features)
    state, cell = np.repeat(state[None], count, axis=0), np.repeat(cell[None], count, axis=0)
    episodes, devices = Episodes(items, count), items.devices
    keys, inputs = encoded @ tensors["attention"], _linear(tensors["decoder"], encoded, HIDDEN)  # (N, H), (N, 4H)
    previous = np.full(count, devices)  # the row for "no device yet"
    hidden, decoder = [state], list[LstmStep]()
    rows: list[tuple[Floats, Floats, Floats]] = []
    while not episodes.done:
        i, room = episodes.step, episodes.room()
        flow = inputs[i] + tensors["device"][previous] + state @ tensors["decoder"][HIDDEN:-1]
        state, cell, step = _lstm(flow, cell)
        attention = _softmax(state @ keys.T)
        joined = np.tanh(_linear(tensors["joined"], np.concatenate([state, attention @ encoded], axis=1)))
        logits = np.where(room, _linear(tensors["score"], joined), NEVER)
        previous = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
        episodes.place(previous)
        hidden.append(state)
        decoder.append(step)
        rows.append((attention, joined, _softmax(logits)))
    attention, joined, chance = (np.stack(each) for each in zip(*rows, strict=True))
    return DrawnEpisodes(
        episodes.target, episodes.dead, encoded, encoder, decoder, np.stack(hidden), attention, joined, chance
    )


def _encode(weights: Floats, features: Floats) -> tuple[Floats, list[LstmStep], Floats, Floats]:
    """States of all items (N, H), the steps, and the last state and cell (H,)."""
    state, cell = np.zeros(HIDDEN), np.zeros(HIDDEN)
    inputs, recurrent = _linear(weights, features, features.shape[1]), weights[features.shape[1] : -1]
    states: list[Floats] = []
    steps: list[LstmStep] = []
    for flow in inputs:
        state, cell, step = _lstm(flow + state @ recurrent, cell)
        states.append(state)
        steps.append(step)
    return np.stack(states), steps, state, cell


def _linear(weights: Floats, flow: Floats, count: int | None = None) -> Floats:
    """The input times the first `count` rows of the weights (by default all but the last), plus the last, the bias."""
    return flow @ weights[: count or -1] + weights[-1]


def _lstm(flow: Floats, cell: Floats) -> tuple[Floats, Floats, LstmStep]:
    """The state and the cell (..., H) after a step with inputs (..., 4H) to the gates."""
    gates = flow.reshape(*cell.shape[:-1], 4, HIDDEN)
    gates = np.concatenate([1.0 / (1.0 + np.exp(-gates[..., :3, :])), np.tanh(gates[..., 3:, :])], axis=-2)
    after = gates[..., 1, :] * cell + gates[..., 0, :] * gates[..., 3, :]
    bent = np.tanh(after)
    return gates[..., 2, :] * bent, after, LstmStep(gates, cell, bent)


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


# --- backward -------------------------------------------------------------------------------------------------------


def gradient(tensors: Tensors, features: Floats, drawn: DrawnEpisodes, advantage: Floats, entropy: float) -> Tensors:
    """Gradient by all weights of the mean over episodes of -advantage * log probability - entropy * policy entropy."""
    slope = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}
    encoded, state = drawn.encoded, drawn.hidden[1:]
    d_logits = _by_logits(drawn, advantage, entropy)
    d_joined = d_logits @ tensors["score"][:-1].T * (1.0 - drawn.joined**2)
    context = drawn.attention @ encoded
    slope["score"][:] = _outer(drawn.joined, d_logits)
    slope["joined"][:] = _outer(np.concatenate([state, context], axis=-1), d_joined)
    d_state, d_context = np.split(d_joined @ tensors["joined"][:-1].T, 2, axis=-1)
    by_attention = d_context @ encoded.T
    d_match = drawn.attention * (by_attention - (by_attention * drawn.attention).sum(axis=-1, keepdims=True))
    d_keys = np.einsum("nej,neh->jh", d_match, state)
    d_encoded = np.einsum("nej,neh->jh", drawn.attention, d_context) + d_keys @ tensors["attention"].T
    slope["attention"][:] = encoded.T @ d_keys
    d_state = d_state + d_match @ (encoded @ tensors["attention"])
    nothing = np.zeros_like(state[0])
    d_flow, d_first, d_cell = _through(drawn.decoder, tensors["decoder"][HIDDEN:-1], d_state, nothing)
    every = d_flow.sum(axis=1)  # (N, 4H)
    slope["decoder"][:HIDDEN] = encoded.T @ every
    slope["decoder"][HIDDEN:-1] = np.einsum("neh,nek->hk", drawn.hidden[:-1], d_flow)
    slope["decoder"][-1] = every.sum(axis=0)
    none_yet = np.full((len(drawn.target), 1), len(tensors["device"]) - 1)
    np.add.at(slope["device"], np.hstack([none_yet, np.maximum(drawn.target[:, :-1], 0)]).T, d_flow)
    d_encoded += every @ tensors["decoder"][:HIDDEN].T
    d_encoded[-1] += d_first.sum(axis=0)
    recurrent = tensors["encoder"][features.shape[1] : -1]
    d_flow, _, _ = _through(drawn.encoder, recurrent, d_encoded, d_cell.sum(axis=0))
    before = np.vstack([np.zeros(HIDDEN), encoded[:-1]])
    slope["encoder"][:] = _outer(np.hstack([features, before]), d_flow)
    return slope


def _by_logits(drawn: DrawnEpisodes, advantage: Floats, entropy: float) -> Floats:
    """Gradient by logits (N, E, D); 0 where no device had room."""
    chance, target = drawn.chance, drawn.target.T  # (N, E)
    logs = np.log(np.maximum(chance, 1e-300))
    d_logits = chance * advantage[:, None]
    step, episode = np.nonzero(target >= 0)
    d_logits[step, episode, target[step, episode]] -= advantage[episode]
    d_logits += entropy * chance * (logs - (chance * logs).sum(axis=-1, keepdims=True))
    return d_logits * (target >= 0)[..., None] / len(advantage)


def _outer(flow: Floats, slope: Floats) -> Floats:
    """Gradient by weights whose last row is a bias, from inputs (..., a) and the gradient by outputs (..., b)."""
    flow, slope = flow.reshape(-1, flow.shape[-1]), slope.reshape(-1, slope.shape[-1])
    return np.vstack([flow.T @ slope, slope.sum(axis=0)])


def _through(
    steps: list[LstmStep], recurrent: Floats, d_states: Floats, d_cell: Floats
) -> tuple[Floats, Floats, Floats]:
    """Backpropagation through an LSTM: gradients by its inputs (N, ..., 4H), first state and first cell."""
    d_state = np.zeros_like(d_states[0])
    flows = np.empty((*d_states.shape[:-1], 4 * HIDDEN))
    for t in range(len(steps) - 1, -1, -1):
        i, f, o, g = np.moveaxis(steps[t].gates, -2, 0)
        d_state = d_state + d_states[t]
        d_cell = d_cell + d_state * o * (1.0 - steps[t].bent ** 2)
        parts = (
            d_cell * g * i * (1.0 - i), d_cell * steps[t].before * f * (1.0 - f),
            d_state * steps[t].bent * o * (1.0 - o), d_cell * i * (1.0 - g**2),
        )  # fmt: skip
        flows[t] = np.concatenate(parts, axis=-1)
        d_state, d_cell = flows[t] @ recurrent.T, d_cell * f
    return flows, d_state, d_cell


class Adam:
    """Adam (Kingma and Ba, 2015); gradients longer than `longest` are scaled down to that length."""

    def __init__(self, tensors: Tensors, rate: float, longest: float = 1.0) -> None:
        self.rate, self.longest, self.steps = rate, longest, 0
        self.mean = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}
        self.square = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}

    def step(self, tensors: Tensors, slope: Tensors) -> None:
        """Update the weights by their gradient."""
        self.steps += 1
        length = float(np.sqrt(sum(float((each**2).sum()) for each in slope.values())))
        scale = min(1.0, self.longest / max(length, 1e-30))
        for name, tensor in tensors.items():
            each = slope[name] * scale
            self.mean[name] += 0.1 * (each - self.mean[name])
            self.square[name] += 0.001 * (each**2 - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.steps)
            tensor -= self.rate * mean / (np.sqrt(self.square[name] / (1 - 0.999**self.steps)) + 1e-8)
