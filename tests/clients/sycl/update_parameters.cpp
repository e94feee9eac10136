// An updatable graph: new pointers, values and ranges for nodes between replays, by
// dynamic_parameter and by update_nd_range.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    usm<int> a(n, queue, kind::shared), b(n, queue, kind::shared);
    std::fill(a.get(), a.get() + n, 0);
    std::fill(b.get(), b.get() + n, 0);
    sycl::kernel add = make_kernel(queue, R"(
      kernel void add(global int *data, int value, local int *group) {
        group[get_local_id(0)] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        data[get_global_id(0)] += group[get_local_size(0) - 1 - get_local_id(0)];
      })", "add");

    graph_t graph{queue};
    exp_::dynamic_parameter<int *> pointer{a.get()};
    exp_::dynamic_parameter<int> value{1};
    auto launch = [&](sycl::handler &h) {
      h.set_arg(0, pointer);
      h.set_arg(1, value);
      h.set_arg(2, sycl::local_accessor<int, 1>{sycl::range<1>{n}, h});
      h.parallel_for(sycl::nd_range<1>{n, 4}, add);
    };
    auto first = graph.add(launch);
    auto second = graph.add(launch, after(first));
    executable_t executable = graph.finalize({exp_::property::graph::updatable{}});
    auto run = [&](const char *name) {
      queue.ext_oneapi_graph(executable).wait_and_throw();
      print((std::string(name) + " a").c_str(), a.get(), n);
      print((std::string(name) + " b").c_str(), b.get(), n);
    };
    run("as made");
    value.update(10);
    executable.update(std::vector<exp_::node>{first, second});
    run("values");
    pointer.update(b.get());
    executable.update(first);
    run("pointer of the first");
    executable.update(second);
    second.update_nd_range(sycl::nd_range<1>{2, 2});
    run("not yet");
    executable.update(second);
    run("range of the second");
    pointer.update(a.get());
    value.update(100);
    run("nothing passed on");
    executable.update(std::vector<exp_::node>{second, first});
    run("both");
  });
}

// Prints:
//   as made a: 2 2 2 2 2 2 2 2
//   as made b: 0 0 0 0 0 0 0 0
//   values a: 22 22 22 22 22 22 22 22
//   values b: 0 0 0 0 0 0 0 0
//   pointer of the first a: 32 32 32 32 32 32 32 32
//   pointer of the first b: 10 10 10 10 10 10 10 10
//   not yet a: 32 32 32 32 32 32 32 32
//   not yet b: 30 30 30 30 30 30 30 30
//   range of the second a: 32 32 32 32 32 32 32 32
//   range of the second b: 50 50 40 40 40 40 40 40
//   nothing passed on a: 32 32 32 32 32 32 32 32
//   nothing passed on b: 70 70 50 50 50 50 50 50
//   both a: 232 232 132 132 132 132 132 132
//   both b: 70 70 50 50 50 50 50 50
//   done
