// A kernel on a part of a buffer, without a graph.
#include "client.hpp"

static const char *source =
    "kernel void add(global int *data, int value) { data[get_global_id(0)] += value; }";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 4,
                     far = 1024; // a sub-buffer begins at a multiple of what the device asks for
    sycl::kernel add = make_kernel(queue, source, "add");
    std::vector<int> data(far + n + 1, 3);
    {
      sycl::buffer<int, 1> whole{data.data(), sycl::range<1>{far + n + 1}},
          part{whole, sycl::id<1>{far}, sycl::range<1>{n}};
      for (int value : {10, 100})
        queue.submit([&](sycl::handler &h) {
          h.set_args(sycl::accessor{part, h, sycl::read_write}, value);
          h.parallel_for(sycl::range<1>{n}, add);
        });
    }
    print("data", data.data() + far - 1, n + 2);
  });
}

// Prints:
//   data: 3 113 113 113 113 3
//   done
