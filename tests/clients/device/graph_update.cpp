// Updates of kernels in SYCL code in a graph: dynamic parameters, ranges of nodes, other kernels,
// and all nodes from another graph. What libsycl 2026.2 cannot do with such kernels, whatever the
// adapter: it never passes a dynamic_local_accessor, and it does not find a dynamic_parameter that
// comes after an accessor.
#include "device.hpp"

static const char *source = R"(
struct step { int factor, more; };
KERNEL(1) advance(int *data, step by) { data[index()] = by.factor * data[index()] + by.more; }
KERNEL(1) negate(int *data) { data[index()] = -data[index()]; }
KERNEL(1) lines(int more, sycl::accessor<int, 1> data) { data[index()] += more; }
KERNEL(1) sizes(exp_::dynamic_work_group_memory<int[]> memory, int size, int *out) {
  auto group = here::get_nd_item<1>().get_group();
  auto local = memory.get();
  for (int i = group.get_local_id(0); i < size; i += group.get_local_range(0))
    local[i] = i;
  sycl::group_barrier(group);
  out[index()] = local[size - 1];
})";

struct step {
  int factor, more;
};

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 6;
    const sycl::property_list updatable{exp_::property::graph::updatable{}};
    device_code code(queue, source);
    usm<int> a(n, queue, kind::shared), b(n, queue, kind::device), seen(n, queue, kind::shared);
    auto look = [&](const char *name, executable_t &executable) {
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print(name, a.get(), n);
      queue.memcpy(seen.get(), b.get(), n * sizeof(int)).wait_and_throw();
      print("  and b", seen.get(), n);
    };
    std::fill(a.get(), a.get() + n, 1);
    queue.memset(b.get(), 0, n * sizeof(int)).wait_and_throw();
    {
      graph_t graph{queue};
      exp_::dynamic_parameter<int *> pointer{OF(graph) a.get()};
      exp_::dynamic_parameter<step> by{OF(graph) step{1, 1}};
      auto dynamic = [&](sycl::handler &h) {
        h.set_args(pointer, by);
        h.parallel_for(groups_of{n, 2}, code["advance"]);
      };
      auto first = graph.add(dynamic);
      auto second = graph.add(dynamic, after(first));
      executable_t executable = graph.finalize(updatable);
      look("as made", executable);
      by.update(step{2, 3});
      executable.update(first);
      look("struct of the first", executable);
      pointer.update(b.get());
      executable.update(second);
      second.update_nd_range(groups_of{4, 4});
      look("pointer of the second", executable);
      executable.update(second);
      look("range of the second", executable);
    }
    {
      graph_t graph{queue};
      exp_::dynamic_command_group either{
          graph,
          {launch(code["advance"], groups_of{n, 3}, a.get(), step{0, 8}),
           launch(code["negate"], groups_of{n / 2, 3}, a.get())}};
      auto node = graph.add(either);
      executable_t executable = graph.finalize(updatable);
      look("one kernel", executable);
      either.set_active_index(1);
      executable.update(node);
      look("the other", executable);
    }
    {
      auto make = [&](int *data, step by, size_t size) {
        graph_t graph{queue};
        auto first = graph.add(launch(code["advance"], groups_of{size, 2}, data, by));
        graph.add(launch(code["negate"], groups_of{size, 2}, data), after(first));
        return graph;
      };
      graph_t one = make(a.get(), step{0, 4}, n), other = make(b.get(), step{0, 9}, 4);
      executable_t executable = one.finalize(updatable);
      look("one graph", executable);
      executable.update(other);
      look("another graph", executable);
    }
    {
      sycl::buffer<int, 1> x{sycl::range<1>{n}}, y{sycl::range<1>{n}};
      x.set_write_back(false), y.set_write_back(false);
      for (auto *each : {&x, &y})
        queue.submit([&](sycl::handler &h) { h.fill(sycl::accessor<int, 1>{*each, h}, 0); })
            .wait_and_throw();
      {
        constexpr auto later = sycl::access::placeholder::true_t;
        sycl::accessor<int, 1, sycl::access_mode::read_write, sycl::target::device, later> of_x{x},
            of_y{y};
        graph_t graph{queue, uses_buffers};
        exp_::dynamic_parameter data{OF(graph) of_x};
        exp_::dynamic_parameter<int> more{OF(graph) 5};
        auto node = graph.add([&](sycl::handler &h) {
          h.require(data);
          h.set_args(more, data);
          h.parallel_for(groups_of{n, 2}, code["lines"]);
        });
        executable_t executable = graph.finalize(updatable);
        queue.ext_oneapi_graph(executable).wait_and_throw();
        data.update(of_y), more.update(7);
        executable.update(node);
        queue.ext_oneapi_graph(executable).wait_and_throw();
      }
      print("x", sycl::host_accessor{x, sycl::read_only});
      print("y", sycl::host_accessor{y, sycl::read_only});
    }
    {
      graph_t graph{queue};
      exp_::dynamic_work_group_memory<int[]> memory{OF(graph) 4};
      exp_::dynamic_parameter<int> size{OF(graph) 4};
      auto node = graph.add([&](sycl::handler &h) {
        h.set_args(memory, size, a.get());
        h.parallel_for(groups_of{n, 2}, code["sizes"]);
      });
      executable_t executable = graph.finalize(updatable);
      look("local memory", executable);
      memory.update(1000), size.update(1000);
      executable.update(node);
      look("more of it", executable);
    }
  });
}

// Prints:
//   as made: 3 3 3 3 3 3
//     and b: 0 0 0 0 0 0
//   struct of the first: 10 10 10 10 10 10
//     and b: 0 0 0 0 0 0
//   pointer of the second: 23 23 23 23 23 23
//     and b: 3 3 3 3 3 3
//   range of the second: 49 49 49 49 49 49
//     and b: 9 9 9 9 3 3
//   one kernel: 8 8 8 8 8 8
//     and b: 9 9 9 9 3 3
//   the other: -8 -8 -8 8 8 8
//     and b: 9 9 9 9 3 3
//   one graph: -4 -4 -4 -4 -4 -4
//     and b: 9 9 9 9 3 3
//   another graph: -4 -4 -4 -4 -4 -4
//     and b: -9 -9 -9 -9 3 3
//   x: 5 5 5 5 5 5
//   y: 7 7 7 7 7 7
//   local memory: 3 3 3 3 3 3
//     and b: -9 -9 -9 -9 3 3
//   more of it: 999 999 999 999 999 999
//     and b: -9 -9 -9 -9 3 3
//   done
