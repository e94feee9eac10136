// Buffers without a graph, on queues of both orders: kernels, fills, copies of rectangles, host
// accessors, write-back.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    sycl::kernel axpy = make_kernel(queue, R"(
      kernel void axpy(global int *y, global const int *x, int a) {
        size_t i = get_global_id(0);
        y[i] += a * x[i];
      })",
                                    "axpy");
    sycl::queue line{queue.get_context(), queue.get_device(), sycl::property::queue::in_order{}};
    std::vector<int> x(n), y(n, 1), grid(12, 0);
    std::iota(x.begin(), x.end(), 0);
    {
      sycl::buffer<int, 1> bx{x.data(), sycl::range<1>{n}}, by{y.data(), sycl::range<1>{n}};
      sycl::buffer<int, 2> to{grid.data(), sycl::range<2>{3, 4}},
          from = bx.reinterpret<int, 2>(sycl::range<2>{2, 4});
      for (sycl::queue each : {queue, line})
        each.submit([&](sycl::handler &h) {
          h.set_args(sycl::accessor{by, h, sycl::read_write},
                     sycl::accessor{bx, h, sycl::read_only}, 10);
          h.parallel_for(sycl::range<1>{n}, axpy);
        });
      queue.submit([&](sycl::handler &h) {
        h.fill(sycl::accessor{bx, h, sycl::range<1>{2}, sycl::id<1>{3}, sycl::write_only}, -1);
      });
      print("y, mapped", sycl::host_accessor{by, sycl::read_write});
      queue.submit([&](sycl::handler &h) {
        h.copy(sycl::accessor{from, h, sycl::range<2>{2, 2}, sycl::id<2>{0, 1}, sycl::read_only},
               sycl::accessor{to, h, sycl::range<2>{2, 2}, sycl::id<2>{1, 2}, sycl::write_only});
      });
    }
    print("x", x);
    print("y", y);
    print("grid", grid);
  });
}

// Prints:
//   y, mapped: 1 21 41 61 81 101 121 141
//   x: 0 1 2 -1 -1 5 6 7
//   y: 1 21 41 61 81 101 121 141
//   grid: 0 0 0 0 0 0 1 2 0 0 5 6
//   done
