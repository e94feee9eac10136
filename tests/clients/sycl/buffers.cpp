// Buffers in a graph: fills, copies of whole buffers and of rectangles, and a kernel that takes an
// accessor.
#include "client.hpp"

static const char *source = "kernel void twice(global int *data) { data[get_global_id(0)] *= 2; }";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t w = 4, h = 3, n = w * h;
    sycl::buffer<int, 1> line{sycl::range<1>{n}};
    sycl::buffer<int, 2> from{sycl::range<2>{h, w}}, to{sycl::range<2>{h, w}};
    for (auto *buffer : {&from, &to})
      buffer->set_write_back(false);
    line.set_write_back(false);
    {
      sycl::host_accessor start{from, sycl::write_only};
      for (size_t i = 0; i < n; i++)
        start[i / w][i % w] = int(i);
    }

    {
      graph_t graph{queue, uses_buffers};
      sycl::kernel twice = make_kernel(queue, source, "twice");
      auto filled = graph.add([&](sycl::handler &c) {
        c.fill(sycl::accessor{to, c, sycl::write_only, sycl::no_init}, -1);
      });
      graph.add([&](sycl::handler &c) {
        c.fill(sycl::accessor{line, c, sycl::write_only, sycl::no_init}, 21);
      });
      auto placed = graph.add([&](sycl::handler &c) {
        c.copy(sycl::accessor{from, c, sycl::range<2>{2, 2}, sycl::id<2>{1, 1}, sycl::read_only},
               sycl::accessor{to, c, sycl::range<2>{2, 2}, sycl::id<2>{0, 2}, sycl::write_only});
      }, after(filled)); // DPC++ 2026.2 sees no dependence between two accessors that only write
      graph.add([&](sycl::handler &c) {
        c.copy(sycl::accessor{to, c, sycl::read_only}, sycl::accessor{from, c, sycl::write_only});
      }, after(placed));
      graph.add([&](sycl::handler &c) {
        c.set_args(sycl::accessor{line, c, sycl::read_write});
        c.parallel_for(sycl::range<1>{n - 2}, twice);
      });
      executable_t executable = graph.finalize();
      for (int run = 0; run < 2; run++)
        queue.ext_oneapi_graph(executable).wait_and_throw();
    }
    print("line", sycl::host_accessor{line, sycl::read_only});
    print("from", sycl::host_accessor{from, sycl::read_only});
    print("to", sycl::host_accessor{to, sycl::read_only});
  });
}

// Prints:
//   line: 42 42 42 42 42 42 42 42 42 42 21 21
//   from: -1 -1 -1 9 -1 -1 -1 -1 -1 -1 -1 -1
//   to: -1 -1 -1 9 -1 -1 -1 -1 -1 -1 -1 -1
//   done
