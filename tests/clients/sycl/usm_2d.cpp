// A two-dimensional copy of USM without a graph: rows of one pitch to rows of another.
#include "client.hpp"

int main() {
  return client([](sycl::queue &queue) {
    constexpr size_t n = 12, row = sizeof(int);
    // one of the two is of the kind host: between others DPC++ runs a kernel of its own where the
    // adapter has no such copy
    usm<int> from(n, queue, kind::shared), to(n, queue, kind::host);
    std::iota(from.get(), from.get() + n, 0);
    std::fill(to.get(), to.get() + n, -1);
    queue.ext_oneapi_memcpy2d(to.get() + 1, 3 * row, from.get(), 4 * row, 2 * row, 3)
        .wait_and_throw();
    print("to", to.get(), n);
  });
}

// Prints:
//   to: -1 0 1 -1 4 5 -1 8 9 -1 -1 -1
//   done
