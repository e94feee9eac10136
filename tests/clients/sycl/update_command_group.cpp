// An updatable graph with a node that is one of several command groups: other kernels, arguments
// and ranges.
#include "client.hpp"

static const char *source = R"(
  kernel void add(global int *data, int value) { data[get_global_id(0)] += value; }
  kernel void subtract(global int *data, int value) { data[get_global_id(0)] -= value; }
  kernel void multiply(global int *data, global const int *by) {
    data[get_global_id(0)] *= by[get_global_id(0)];
  })";

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    usm<int> data(n, queue, kind::shared), by(n, queue, kind::shared);
    std::fill(data.get(), data.get() + n, 1);
    std::iota(by.get(), by.get() + n, 1);
    sycl::kernel add = make_kernel(queue, source, "add"),
                 subtract = make_kernel(queue, source, "subtract");
    sycl::kernel multiply = make_kernel(queue, source, "multiply");

    graph_t graph{queue};
    exp_::dynamic_parameter<int> value{4};
    // Three kernels: one that occurs twice DPC++ 2026.2 names as an alternative to itself, which
    // Unified Runtime forbids.
    exp_::dynamic_command_group choice{graph,
                                       {[&](sycl::handler &h) {
                                          h.set_arg(0, data.get());
                                          h.set_arg(1, value);
                                          h.parallel_for(sycl::range<1>{n}, add);
                                        },
                                        launch(multiply, sycl::range<1>{n}, data.get(), by.get()),
                                        launch(subtract, sycl::range<1>{2}, data.get() + 1, 100)}};
    auto chosen = graph.add(choice);
    graph.add(launch(add, sycl::range<1>{1}, data.get(), 1), after(chosen));
    executable_t executable = graph.finalize({exp_::property::graph::updatable{}});
    for (size_t index : {0, 1, 1, 2, 0}) {
      choice.set_active_index(index);
      value.update(int(10 * index + 5));
      executable.update(chosen);
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print("data", data.get(), n);
    }
  });
}

// Prints:
//   data: 7 6 6 6 6 6
//   data: 8 12 18 24 30 36
//   data: 9 24 54 96 150 216
//   data: 10 -76 -46 96 150 216
//   data: 16 -71 -41 101 155 221
//   done
