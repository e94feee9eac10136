"""A pipeline of images with Python in its middle: blur, a threshold that a host task finds, the bright parts, their edges.

The commands are recorded from the function that runs them directly. The images are in buffers, and what comes after what follows from the
accessors: nobody says that the threshold has to wait for the blur and the host task. The graph has to be cut there; `explain()` says how.
"""

import sys
from collections.abc import Callable

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Handler, Kernel, Program, Queue

KERNELS = """
kernel void blur(global const uchar *in, global uchar *out) {  // weights 1 2 1; the outermost pixels stay
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), m = get_global_size(1), sum = 0;
    if (x > 0 && x < n - 1 && y > 0 && y < m - 1) {
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                sum += (2 - abs(dx)) * (2 - abs(dy)) * in[(y + dy) * n + x + dx];
        out[y * n + x] = sum / 16;
    } else out[y * n + x] = in[y * n + x];
}
kernel void bright(global const uchar *in, global const uchar *threshold, global uchar *out) {
    out[get_global_id(0)] = in[get_global_id(0)] > *threshold;
}
kernel void edges(global const uchar *in, global uchar *out) {  // where the pixel to the right, or the one below, is another one
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), m = get_global_size(1), i = y * n + x;
    out[i] = (x < n - 1 && in[i] != in[i + 1]) || (y < m - 1 && in[i] != in[i + n]);
}"""


def threshold_of(image: np.ndarray) -> np.uint8:
    """The value that parts dark from bright best: Otsu's method, on the histogram."""
    counts, values = np.bincount(image.ravel(), minlength=256), np.arange(256)
    below, sums = np.cumsum(counts), np.cumsum(counts * values)
    above = below[-1] - below
    apart = (
        sums * above - (sums[-1] - sums) * below
    )  # the difference of both means, times both counts
    return np.uint8(np.argmax(apart.astype(float) ** 2 / np.maximum(below * above, 1)))


class Pipeline:
    """The images on a device. `picture` is the host's: whatever is in there when the pipeline runs goes through it."""

    def __init__(self, queue: Queue, pictures: np.ndarray) -> None:
        self.queue, self.pictures = queue, pictures
        self.program = Program(queue.context, KERNELS)
        self.picture, self.result, self.found = (
            pictures[0].copy(),
            pictures[0].copy(),
            np.empty_like(pictures),
        )
        self.raw, self.blurred, self.mask, self.outline = (
            Buffer(self.picture.shape, np.uint8, write_back=False) for _ in range(4)
        )
        self.threshold = Buffer(1, np.uint8, write_back=False)

    def run(self) -> None:
        """Submit, or record, the commands for a picture."""
        size, program = self.picture.shape[::-1], self.program

        def find_threshold(h: Handler) -> None:
            blurred, threshold = h.access(self.blurred, "read"), h.access(self.threshold, "discard")
            h.host_task(lambda: threshold.array.fill(threshold_of(blurred.array)))

        def submit(
            kernel: Kernel, size: int | tuple[int, ...], *accesses: tuple[Buffer, str]
        ) -> None:
            self.queue.submit(
                lambda h: h.parallel_for(size, kernel, *(h.access(*access) for access in accesses))
            )

        self.queue.submit(lambda h: h.copy(self.picture, h.access(self.raw, "discard")))
        submit(program.blur, size, (self.raw, "read"), (self.blurred, "discard"))
        self.queue.submit(find_threshold)
        submit(
            program.bright,
            self.raw.size,
            (self.blurred, "read"),
            (self.threshold, "read"),
            (self.mask, "discard"),
        )
        submit(program.edges, size, (self.mask, "read"), (self.outline, "discard"))
        self.queue.submit(lambda h: h.copy(h.access(self.outline, "read"), self.result))

    def record(self) -> None:
        self.graph = CommandGraph(self.queue, assume_buffer_outlives_graph=True)
        with self.graph.recording(self.queue):  # nothing runs in here
            self.run()
        self.loop = self.graph.finalize()

    def each(self, process: Callable[[], object]) -> int:
        """Process all pictures."""
        for picture, found in zip(self.pictures, self.found, strict=True):
            self.picture[:] = picture
            process()
            self.queue.wait()
            found[:] = self.result
        return len(self.pictures)


def in_numpy(picture: np.ndarray) -> np.ndarray:
    """The edges of one picture without OpenCL."""
    blurred, wide = picture.copy(), picture.astype(int)
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    blurred[1:-1, 1:-1] = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) // 16
    mask, edges = blurred > threshold_of(blurred), np.zeros_like(picture)
    edges[:, :-1] |= mask[:, :-1] != mask[:, 1:]
    edges[:-1] |= mask[:-1] != mask[1:]
    return edges


def main() -> bool:
    chosen = options(__doc__, size=128, pictures=20)
    x, y = np.meshgrid(np.arange(chosen.size), np.arange(chosen.size))
    noise = np.random.default_rng(1).integers(0, 80, (chosen.pictures, chosen.size, chosen.size))
    discs = [
        np.hypot(x - chosen.size / 2, y - chosen.size / 3) < 2 + number
        for number in range(chosen.pictures)
    ]
    light = 10 * np.arange(chosen.pictures).reshape(-1, 1, 1) % 80  # each picture has its own
    pictures = (noise + 40 * np.array(discs) + light).astype(np.uint8)

    images = Pipeline(
        queue := Queue(), pictures
    )  # to the device that ONEAPI_DEVICE_SELECTOR selects
    images.record()
    print(images.loop.explain())
    what = f"{chosen.pictures} pictures of {chosen.size}×{chosen.size}; the graph has {len(images.graph)} nodes"
    ways = {
        "direct": lambda: images.each(images.run),
        "replayed": lambda: images.each(lambda: queue.graph(images.loop)),
    }
    expected = np.array([in_numpy(picture) for picture in pictures]).astype(int)
    return compare(
        queue.device,
        what,
        "picture",
        lambda: images.found.fill(0),
        ways,
        lambda: images.found,
        expected,
        0,
    )


if __name__ == "__main__":
    sys.exit(main())
