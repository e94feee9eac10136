// Sub-devices: how a device is divided, a context of them, one of a part alone, and a queue of a
// part in the device's own.
#include "device.hpp"

static const char *source = R"(
KERNEL(1) add(int *out, int value) { out[index()] += value; }
)";

static std::vector<sycl::device> divided(const sycl::device &device) {
  using ways = sycl::info::partition_property;
  auto domain = sycl::info::partition_affinity_domain::next_partitionable;
  for (auto known : device.get_info<sycl::info::device::partition_affinity_domains>())
    if (known == domain)
      return device.create_sub_devices<ways::partition_by_affinity_domain>(domain);
  return device.create_sub_devices<ways::partition_equally>(
      device.get_info<sycl::info::device::max_compute_units>() / 2);
}

int main() {
  return client([](sycl::queue &whole) {
    constexpr size_t n = 4;
    auto device = whole.get_device();
    auto parts = divided(device);
    print("parts", std::vector<size_t>{parts.size()});
    std::vector<bool> related;
    for (auto &part : parts)
      related.push_back(part.get_info<sycl::info::device::parent_device>() == device &&
                        part != device);
    print("of the device", related);
    // OpenCL has no queues of a part in a context that lacks it.
    bool domains = device.get_backend() == sycl::backend::ext_oneapi_level_zero;
    sycl::context own = domains ? whole.get_context() : sycl::context{parts};
    for (auto &context : {own, sycl::context{parts}, sycl::context{parts[0]}})
      for (auto &part : context.get_devices()[0] != parts[0] ? parts : context.get_devices()) {
        sycl::queue queue{context, part, rethrow, sycl::property::queue::in_order{}};
        usm<int> out(n, queue, kind::shared), memory(n, queue, kind::device);
        device_code code(queue, source);
        std::vector<int> numbers{1, 2, 3, 4};
        queue.copy(numbers.data(), memory.get(), n);
        queue.submit(launch(code["add"], groups_of{n, 2}, memory.get(), 10));
        graph_t graph{queue};
        graph.add(launch(code["add"], groups_of{n, 2}, memory.get(), 100));
        queue.ext_oneapi_graph(graph.finalize());
        queue.copy(memory.get(), out.get(), n).wait_and_throw();
        print("sums", out.get(), n);
      }
  });
}

// Prints:
//   parts: 2
//   of the device: 1 1
//   sums: 111 112 113 114
//   sums: 111 112 113 114
//   sums: 111 112 113 114
//   sums: 111 112 113 114
//   sums: 111 112 113 114
//   done
