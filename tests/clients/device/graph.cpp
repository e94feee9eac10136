// A graph of kernels in SYCL code, as it was made: USM, accessors, local memory, structs,
// dependencies, and a recorded queue. Kernels do not ask for the size of the local accessor:
// libsycl 2026.2 gives those in a graph a random one, whatever the adapter.
#include "device.hpp"

static const char *source = R"(
struct step { int factor, more; };
KERNEL(1) advance(int *data, step by) { data[index()] = by.factor * data[index()] + by.more; }
KERNEL(1)
summed(sycl::accessor<int, 1> sums, const int *data, sycl::local_accessor<int, 1> scratch) {
  auto item = here::get_nd_item<1>();
  scratch[item.get_local_id(0)] = data[index()];
  sycl::group_barrier(item.get_group());
  int sum = 0;
  for (size_t i = 0; i < item.get_local_range(0); i++)
    sum += scratch[i];
  if (!item.get_local_id(0))
    sums[item.get_group(0)] += sum;
})";

struct step {
  int factor, more;
};

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 8;
    device_code code(queue, source);
    usm<int> data(n, queue, kind::shared);
    std::iota(data.get(), data.get() + n, 0);
    sycl::buffer<int, 1> sums{sycl::range<1>{2}};
    sums.set_write_back(false);
    {
      sycl::host_accessor zeroed{sums, sycl::write_only};
      zeroed[0] = zeroed[1] = 0;
    }
    {
      graph_t graph{queue, uses_buffers};
      auto first = graph.add(launch(code["advance"], groups_of{n, 4}, data.get(), step{2, 1}));
      auto second =
          graph.add(launch(code["advance"], groups_of{n, 2}, data.get(), step{3, 0}), after(first));
      graph.add(
          [&](sycl::handler &h) {
            h.set_args(sycl::accessor<int, 1>{sums, h}, data.get(),
                       sycl::local_accessor<int, 1>{sycl::range<1>{4}, h});
            h.parallel_for(groups_of{n, 4}, code["summed"]);
          },
          after(second));
      executable_t executable = graph.finalize();
      for (int run = 0; run < 2; run++) {
        queue.ext_oneapi_graph(executable).wait_and_throw();
        print("data", data.get(), n);
      }
    }
    print("sums", sycl::host_accessor{sums, sycl::read_only});
    graph_t recorded{queue};
    recorded.begin_recording(queue);
    std::vector<int> ones(n, 1);
    auto filled = queue.copy(ones.data(), data.get(), n);
    auto once_more = queue.submit([&](sycl::handler &h) {
      h.depends_on(filled);
      launch(code["advance"], groups_of{n / 2, 2}, data.get(), step{10, 5})(h);
    });
    queue.submit([&](sycl::handler &h) {
      h.depends_on(once_more);
      launch(code["advance"], groups_of{n, 2}, data.get(), step{2, 0})(h);
    });
    recorded.end_recording();
    queue.ext_oneapi_graph(recorded.finalize()).wait_and_throw();
    print("recorded", data.get(), n);
  });
}

// Prints:
//   data: 3 9 15 21 27 33 39 45
//   data: 21 57 93 129 165 201 237 273
//   sums: 348 1020
//   recorded: 30 30 30 30 2 2 2 2
//   done
