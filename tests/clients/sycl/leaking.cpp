// Loses a queue. The loader's leak checking has to say so, or its silence about the other programs
// would mean nothing.
#include "client.hpp"

int main() {
  return client(
      [](sycl::queue &queue) { new sycl::queue{queue.get_context(), queue.get_device()}; });
}

// Prints:
//   done
