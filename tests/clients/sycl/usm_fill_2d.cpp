// A two-dimensional fill of USM with a pattern of several bytes. libsycl 2026.2 gives adapters its pitch and width in elements, so that
// an adapter that takes the fill fills too little. The kernel that libsycl has instead is in programs that DPC++ compiled, not in this one.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 12, pitch = 4, width = 3, height = 3;
    usm<int> memory(n, queue, kind::shared);
    std::fill(memory.get(), memory.get() + n, -1);
    bool filled = true;
    try {
      queue.ext_oneapi_fill2d(memory.get(), pitch, 7, width, height).wait_and_throw();
    } catch (const sycl::exception &) {
      filled = false;
    }
    bool right = true;
    for (size_t i = 0; i < n; i++)
      right = right && memory.get()[i] == (filled && i % pitch < width ? 7 : -1);
    std::cout << (right ? "right or refused" : "wrong") << "\n";
  });
}

// Prints:
//   right or refused
//   done
