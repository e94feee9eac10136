// Kernels in a graph: USM pointers, values of several sizes, local memory, one to three dimensions,
// offsets left to the runtime.
#include "client.hpp"

static const char *source = R"(
  typedef struct { char c; double d; short s; } record;
  kernel void values(global double *out, char c, ulong big, float3 v, record r) {
    out[0] = c; out[1] = big; out[2] = v.x; out[3] = v.y; out[4] = v.z;
    out[5] = r.c; out[6] = r.d; out[7] = r.s;
  }
  kernel void reverse(global int *out, global const int *in, local int *scratch) {
    size_t l = get_local_id(0), size = get_local_size(0), first = get_group_id(0) * size;
    scratch[l] = in[first + l];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[first + l] = scratch[size - 1 - l];
  }
  kernel void shape(global int *out) {
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    out[x + get_global_size(0) * (y + get_global_size(1) * z)] =
        1000 * get_work_dim() + 100 * z + 10 * y + x;
  })";

struct record {
  char c;
  double d;
  short s;
};

int main() {
  return client([](sycl::queue &queue) {
    usm<double> doubles(8, queue, kind::shared);
    usm<int> in(8, queue, kind::shared), out(8, queue, kind::shared), grid(36, queue, kind::shared);
    std::iota(in.get(), in.get() + 8, 0);
    sycl::kernel values = make_kernel(queue, source, "values"),
                 reverse = make_kernel(queue, source, "reverse");
    sycl::kernel shape = make_kernel(queue, source, "shape");

    graph_t graph{queue};
    auto first = graph.add([&](sycl::handler &h) {
      h.set_args(doubles.get(), char(-3), cl_ulong(1) << 40, cl_float3{{0.5f, 1.5f, 2.5f}},
                 record{7, 0.25, -9});
      h.single_task(values);
    });
    graph.add([&](sycl::handler &h) {
      h.set_arg(0, out.get());
      h.set_arg(1, in.get());
      h.set_arg(2, sycl::local_accessor<int, 1>{sycl::range<1>{4}, h});
      h.parallel_for(sycl::nd_range<1>{8, 4}, reverse);
    }, after(first));
    graph.add(launch(shape, sycl::range<1>{12}, grid.get()));
    graph.add(launch(shape, sycl::range<2>{3, 4}, grid.get() + 12));
    graph.add(launch(shape, sycl::nd_range<3>{{2, 2, 3}, {1, 2, 3}}, grid.get() + 24));
    queue.ext_oneapi_graph(graph.finalize()).wait_and_throw();

    print("values", doubles.get(), 8);
    print("reversed", out.get(), 8);
    for (int dimensions = 1; dimensions <= 3; dimensions++)
      print("grid", grid.get() + 12 * (dimensions - 1), 12);
  });
}

// Prints:
//   values: -3 1.09951e+12 0.5 1.5 2.5 7 0.25 -9
//   reversed: 3 2 1 0 7 6 5 4
//   grid: 1000 1001 1002 1003 1004 1005 1006 1007 1008 1009 1010 1011
//   grid: 2000 2001 2002 2003 2010 2011 2012 2013 2020 2021 2022 2023
//   grid: 3000 3001 3002 3010 3011 3012 3100 3101 3102 3110 3111 3112
//   done
