"""The kernels that the cases launch.

A driver that takes SPIR-V gets a module with `store` alone (ur/spirv.py). One that takes OpenCL C
as its native format gets all of these. Those of images are a module of their own, because a device
may have no images.
"""

from __future__ import annotations

from typing import Final

SOURCE: Final = b"""
kernel void store(global int *out, int value) { out[get_global_id(0)] = value; }
kernel void twice(global int *out) { out[get_global_id(0)] *= 2; }
kernel void sizes(global int *out) { out[get_global_id(0)] = get_local_size(0); }
kernel void sums(global int *out, local int *scratch) {
    scratch[get_local_id(0)] = get_local_id(0) + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int i = 0; i < get_local_size(0); i++) sum += scratch[i];
    out[get_global_id(0)] = sum;
}
"""
IMAGE_SOURCE: Final = b"""
kernel void flip(read_only image2d_t from, write_only image2d_t to, sampler_t sampler) {
    int x = get_global_id(0), last = get_image_width(from) - 1;
    write_imageui(to, (int2)(last - x, 0), read_imageui(from, sampler, (int2)(x, 0)));
}
kernel void reds(read_only image1d_buffer_t from, global int *out) {
    out[get_global_id(0)] = read_imageui(from, (int)get_global_id(0)).x;
}
"""
