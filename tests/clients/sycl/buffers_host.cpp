// Copies between buffers and host memory as nodes of a graph: whole, in part, in two dimensions,
// and update_host.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t w = 4, h = 3, n = w * h;
    std::vector<int> input(n), output(n), written(n);
    sycl::buffer<int, 1> line{written.data(), sycl::range<1>{n}};
    sycl::buffer<int, 2> grid{sycl::range<2>{h, w}};
    line.set_write_back(false);
    grid.set_write_back(false);
    {
      graph_t graph{queue, uses_buffers};
      auto in = graph.add([&](sycl::handler &c) {
        c.copy(input.data(), sycl::accessor{line, c, sycl::write_only});
      });
      auto part = graph.add(
          [&](sycl::handler &c) {
            c.copy(sycl::accessor{line, c, sycl::range<1>{2}, sycl::id<1>{3}, sycl::read_only},
                   output.data());
          },
          after(in));
      auto there = graph.add([&](sycl::handler &c) {
        c.copy(input.data(), sycl::accessor{grid, c, sycl::write_only});
      });
      graph.add(
          [&](sycl::handler &c) {
            c.copy(
                sycl::accessor{grid, c, sycl::range<2>{2, 2}, sycl::id<2>{1, 1}, sycl::read_only},
                output.data() + 4);
          },
          after(there));
      graph.add([&](sycl::handler &c) { c.update_host(sycl::accessor{line, c, sycl::read_only}); },
                after(part));
      executable_t executable = graph.finalize();
      for (int run = 0; run < 2; run++) {
        std::iota(input.begin(), input.end(), 100 * run);
        queue.ext_oneapi_graph(executable).wait_and_throw();
        print("output", output);
        print("written", written);
      }
    }
    print("line", sycl::host_accessor{line, sycl::read_only});
    print("grid", sycl::host_accessor{grid, sycl::read_only});
  });
}

// Prints:
//   output: 3 4 0 0 5 6 9 10 0 0 0 0
//   written: 0 1 2 3 4 5 6 7 8 9 10 11
//   output: 103 104 0 0 105 106 109 110 0 0 0 0
//   written: 100 101 102 103 104 105 106 107 108 109 110 111
//   line: 100 101 102 103 104 105 106 107 108 109 110 111
//   grid: 100 101 102 103 104 105 106 107 108 109 110 111
//   done
