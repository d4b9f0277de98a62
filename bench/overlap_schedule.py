"""The shortest step of a worker that overlaps communication with parameter servers, under the rule `sync`.

A gradient is pushed once backward has computed it, a parameter is pulled once its gradient has arrived and was applied, a block runs
forward once its parameters are here, and backward starts with all of them. Of what waits for the link, the first layers go first. A
link carries both directions at once; servers take no time.
"""
import heapq

CHUNK = 256 << 10  # ps.range_bytes


def transfers(waiting, seconds_per_byte):
    """Sends (ready, layer, bytes), one at a time, earlier layers first. Returns the same with the times of arrival."""
    waiting = sorted(waiting)
    queue, sent, now = [], [], 0.0
    while waiting or queue:
        if not queue:
            now = max(now, waiting[0][0])
        while waiting and waiting[0][0] <= now:
            _, layer, size = waiting.pop(0)
            heapq.heappush(queue, (layer, size))
        layer, size = heapq.heappop(queue)
        now += size * seconds_per_byte
        sent.append((now, layer, size))
    return sent


def chunks(ready, layer, size):
    whole, rest = divmod(size, CHUNK)
    return [(ready, layer, CHUNK)] * int(whole) + ([(ready, layer, rest)] if rest else [])


def shortest_step(layers, seconds_per_byte, steps=6):
    """`layers`: (seconds of forward, seconds of backward, bytes) in the order of forward. Seconds of a step in the steady state."""
    here = [0.0] * len(layers)
    now = before = 0.0
    for _ in range(steps):
        before = now
        for (forward, _, _), arrived in zip(layers, here):
            now = max(now, arrived) + forward
        now = max(now, *here)
        gradients = []
        for layer in reversed(range(len(layers))):
            now += layers[layer][1]
            gradients += chunks(now, layer, layers[layer][2])
        for arrived, layer, _ in transfers(transfers(gradients, seconds_per_byte), seconds_per_byte):
            here[layer] = arrived
    return now - before
