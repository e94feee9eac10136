"""A pipeline of images with Python in its middle: blur, threshold, bright parts, edges.

A host task computes the threshold, which divides the graph into partitions; `explain()` prints
them. The images are in buffers, so the accessors give the order of the commands.
"""

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from comparison import compare, options

from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Handler, Kernel, Program, Queue

KERNELS = """
kernel void blur(global const uchar *in, global uchar *out) {  // keeps the outermost pixels
    int x = get_global_id(0), y = get_global_id(1), sum = 0;
    int n = get_global_size(0), m = get_global_size(1), i = y * n + x;
    out[i] = in[i];
    if (x == 0 || x == n - 1 || y == 0 || y == m - 1) return;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            sum += (2 - abs(dx)) * (2 - abs(dy)) * in[i + dy * n + dx];
    out[i] = sum / 16;
}
kernel void bright(global const uchar *in, global const uchar *threshold, global uchar *out) {
    int i = get_global_id(1) * get_global_size(0) + get_global_id(0);
    out[i] = in[i] > *threshold;
}
kernel void edges(global const uchar *in, global uchar *out) {  // compares with right and below
    int x = get_global_id(0), y = get_global_id(1);
    int n = get_global_size(0), m = get_global_size(1), i = y * n + x;
    out[i] = (x < n - 1 && in[i] != in[i + 1]) || (y < m - 1 && in[i] != in[i + n]);
}"""


def threshold_of(image: np.ndarray) -> np.uint8:
    """Return the value that separates dark from bright best: Otsu's method, by the histogram."""
    counts, values = np.bincount(image.ravel(), minlength=256), np.arange(256)
    below, sums = np.cumsum(counts), np.cumsum(counts * values)
    above = below[-1] - below
    difference = sums * above - (sums[-1] - sums) * below  # of the means, times both counts
    return np.uint8(np.argmax(difference.astype(float) ** 2 / np.maximum(below * above, 1)))


class Pipeline:
    """The images on a device. A run processes the contents of `picture`."""

    def __init__(self, queue: Queue, pictures: np.ndarray) -> None:
        self.queue, self.program = queue, Program(queue.context, KERNELS)
        self.pictures, self.found = pictures, pictures.copy()
        self.picture, self.result = pictures[0].copy(), pictures[0].copy()
        buffers = (Buffer(self.picture.shape, np.uint8, write_back=False) for _ in range(4))
        self.raw, self.blurred, self.mask, self.outline = buffers
        self.threshold = Buffer(1, np.uint8, write_back=False)
        self.graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
        with self.graph.recording(queue):  # nothing runs in here
            self.run()
        self.loop = self.graph.finalize()

    def run(self) -> None:
        """Submit, or record, the commands for a picture."""
        size, kernels, submit = self.picture.shape[::-1], self.program, self.queue.submit

        def find_threshold(h: Handler) -> None:
            blurred, threshold = h.access(self.blurred, "read"), h.access(self.threshold, "discard")
            h.host_task(lambda: threshold.array.fill(threshold_of(blurred.array)))

        def launch(kernel: Kernel, *inputs: Buffer, out: Buffer) -> None:
            uses = [*((buffer, "read") for buffer in inputs), (out, "discard")]
            submit(lambda h: h.parallel_for(size, kernel, *(h.access(*use) for use in uses)))

        submit(lambda h: h.copy(self.picture, h.access(self.raw, "discard")))
        launch(kernels.blur, self.raw, out=self.blurred)
        submit(find_threshold)
        launch(kernels.bright, self.blurred, self.threshold, out=self.mask)
        launch(kernels.edges, self.mask, out=self.outline)
        submit(lambda h: h.copy(h.access(self.outline, "read"), self.result))

    def each(self, process: Callable[[], object]) -> int:
        """Process all pictures."""
        for picture, found in zip(self.pictures, self.found, strict=True):
            self.picture[:] = picture
            process()
            self.queue.wait()
            found[:] = self.result
        return len(self.pictures)


def in_numpy(picture: np.ndarray) -> np.ndarray:
    """Return the edges of one picture, without OpenCL."""
    blurred, wide = picture.copy(), picture.astype(int)
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    blurred[1:-1, 1:-1] = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) // 16
    mask, edges = blurred > threshold_of(blurred), np.zeros_like(picture)
    edges[:, :-1] |= mask[:, :-1] != mask[:, 1:]
    edges[:-1] |= mask[:-1] != mask[1:]
    return edges


def main() -> bool:
    chosen = options(__doc__, size=128, pictures=20)
    number, y, x = np.indices((chosen.pictures, chosen.size, chosen.size))
    noise = np.random.default_rng(1).integers(0, 80, x.shape)
    discs = np.hypot(x - chosen.size / 2, y - chosen.size / 3) < 2 + number
    pictures = (noise + 40 * discs + 10 * number % 80).astype(np.uint8)
    images = Pipeline(Queue(), pictures)  # on the device that ONEAPI_DEVICE_SELECTOR selects
    print(images.loop.explain())
    problem = f"{chosen.pictures} pictures of {chosen.size}×{chosen.size}"
    direct = partial(images.each, images.run)
    replayed = partial(images.each, partial(images.queue.graph, images.loop))
    functions = partial(images.found.fill, 0), direct, replayed, lambda: images.found
    right = np.array([in_numpy(picture) for picture in pictures]).astype(int)
    return compare(images.queue.device, problem, images.graph, "picture", *functions, right, 0)


if __name__ == "__main__":
    sys.exit(not main())
