"""The kernels that the cases launch. `i` is the global id, `size` the number of work-items."""

from __future__ import annotations

from typing import Final

SOURCE: Final = b"""
kernel void store(global int *out, int value) { out[get_global_id(0)] = value; }
kernel void nothing(void) {}
kernel void add_one(global int *a) { a[get_global_id(0)] += 1; }
kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }
kernel void copy(global int *out, global const int *in) {
    out[get_global_id(0)] = in[get_global_id(0)];
}
kernel void axpy(global int *out, global const int *x, int a) {
    out[get_global_id(0)] += a * x[get_global_id(0)];
}
kernel void shape(global ulong *out) {
    size_t id = get_global_id(0) - get_global_offset(0);
    if (id || get_global_id(1) != get_global_offset(1) || get_global_id(2) != get_global_offset(2))
        return;
    out[0] = get_work_dim();
    for (uint i = 0; i < 3; i++) {
        out[1 + i] = get_global_size(i);
        out[4 + i] = get_local_size(i);
        out[7 + i] = get_global_offset(i);
    }
}
kernel void local_sum(global int *out, local int *scratch) {
    size_t l = get_local_id(0), n = get_local_size(0);
    scratch[l] = (int)l + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += scratch[k];
    out[get_global_id(0)] = sum;
}
"""

#: Needs a device with images.
IMAGE_SOURCE: Final = b"""
kernel void sample(read_only image2d_t image, sampler_t sampler, global float *out) {
    int2 place = (int2)(get_global_id(0), get_global_id(1));
    out[place.y * get_global_size(0) + place.x] = read_imagef(image, sampler, place).x;
}
kernel void turn(read_only image2d_t from, sampler_t sampler, write_only image2d_t to) {
    int2 place = (int2)(get_global_id(0), get_global_id(1));
    int2 turned = (int2)(get_image_width(from) - 1 - place.x, place.y);
    write_imagef(to, turned, read_imagef(from, sampler, place));
}
"""

#: Needs a device with variables of programs.
VARIABLE_SOURCE: Final = b"""
global int variable = 5;
kernel void get(global int *out) { out[get_global_id(0)] = variable; }
"""

BROKEN: Final = b"kernel void broken(global int *a) { a[0] = undeclared; }"
