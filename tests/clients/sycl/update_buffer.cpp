// An updatable graph whose dynamic parameter is an accessor: a replay on another buffer.
#include "client.hpp"

static const char *source =
    "kernel void add(global int *data, int value) { data[get_global_id(0)] += value; }";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 4;
    sycl::buffer<int, 1> a{sycl::range<1>{n}}, b{sycl::range<1>{n}};
    a.set_write_back(false);
    b.set_write_back(false);
    for (auto *buffer : {&a, &b}) {
      sycl::host_accessor values{*buffer, sycl::write_only};
      std::fill(values.begin(), values.end(), buffer == &a ? 10 : 20);
    }
    {
      graph_t graph{queue, uses_buffers};
      sycl::kernel add = make_kernel(queue, source, "add");
      constexpr auto later = sycl::access::placeholder::true_t;
      using placeholder =
          sycl::accessor<int, 1, sycl::access_mode::read_write, sycl::target::device, later>;
      placeholder on_a{a}, on_b{b};
      exp_::dynamic_parameter target{on_a};
      auto node = graph.add([&](sycl::handler &h) {
        h.require(target);
        h.set_arg(0, target);
        h.set_arg(1, 1);
        h.parallel_for(sycl::range<1>{n}, add);
      });
      executable_t executable = graph.finalize({exp_::property::graph::updatable{}});
      queue.ext_oneapi_graph(executable).wait_and_throw();
      target.update(on_b);
      executable.update(node);
      queue.ext_oneapi_graph(executable);
      queue.ext_oneapi_graph(executable).wait_and_throw();
    }
    print("a", sycl::host_accessor{a, sycl::read_only});
    print("b", sycl::host_accessor{b, sycl::read_only});
  });
}

// Prints:
//   a: 11 11 11 11
//   b: 22 22 22 22
//   done
