// What the programs share: a queue, kernels from OpenCL C, printing, and the way an error ends a
// program.
#ifndef CLIENT_HPP
#define CLIENT_HPP

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <iostream>
#include <numeric>
#include <sycl/backend/opencl.hpp>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/sycl.hpp>
#include <vector>

namespace exp_ = sycl::ext::oneapi::experimental;
using graph_t = exp_::command_graph<exp_::graph_state::modifiable>;
using kind = sycl::usm::alloc;
using executable_t = exp_::command_graph<exp_::graph_state::executable>;

// A kernel of an OpenCL program that is built for the queue's device: host-only compilation makes
// no device code.
inline sycl::kernel make_kernel(const sycl::queue &queue, const char *source, const char *name) {
  auto context = sycl::get_native<sycl::backend::opencl>(queue.get_context());
  auto device = sycl::get_native<sycl::backend::opencl>(queue.get_device());
  cl_int error = 0;
  cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, &error);
  if (error == CL_SUCCESS)
    error = clBuildProgram(program, 1, &device, "", nullptr, nullptr);
  if (error != CL_SUCCESS)
    throw std::runtime_error("OpenCL C does not build: " + std::to_string(error));
  cl_kernel kernel = clCreateKernel(program, name, &error);
  if (error != CL_SUCCESS)
    throw std::runtime_error("no such kernel: " + std::to_string(error));
  sycl::kernel result = sycl::make_kernel<sycl::backend::opencl>(kernel, queue.get_context());
  clReleaseKernel(kernel); // the runtime keeps references of its own
  clReleaseProgram(program);
  clReleaseDevice(device);
  clReleaseContext(context);
  return result;
}

// A command group that runs a kernel with these arguments.
template <typename Range, typename... Arguments>
auto launch(const sycl::kernel &kernel, Range range, Arguments... arguments) {
  return [=](sycl::handler &h) {
    h.set_args(arguments...);
    h.parallel_for(range, kernel);
  };
}

// The property of a node that comes after others.
template <typename... Nodes> sycl::property_list after(Nodes... nodes) {
  return {exp_::property::node::depends_on(nodes...)};
}

// The property of a graph that uses buffers.
inline const sycl::property_list uses_buffers{
    exp_::property::graph::assume_buffer_outlives_graph{}};

inline void rethrow(sycl::exception_list errors) {
  for (auto &error : errors)
    std::rethrow_exception(error);
}

// "name: 1 2 3"
template <typename Values> void print(const char *name, const Values &values) {
  std::cout << name << ":";
  for (const auto &value : values)
    std::cout << " " << value;
  std::cout << std::endl;
}

template <typename T> void print(const char *name, const T *values, size_t count) {
  print(name, std::vector<T>(values, values + count));
}

// USM that is freed before its queue goes.
template <typename T> class usm {
public:
  usm(size_t count, const sycl::queue &queue, kind of)
      : queue(queue), memory(sycl::malloc<T>(count, queue, of)) {
    if (!memory)
      throw std::runtime_error("no USM");
  }
  usm(const usm &) = delete;
  ~usm() { sycl::free(memory, queue); }
  operator T *() const { return memory; }
  T *get() const { return memory; }

private:
  sycl::queue queue;
  T *memory;
};

// main: the program is `body`. An error is one line on standard output, and exit code 1.
template <typename Body> int client(Body body, const sycl::property_list &properties = {}) {
  try {
    sycl::queue queue{sycl::default_selector_v, rethrow, properties};
    body(queue);
    std::cout << "done" << std::endl;
    return 0;
  } catch (const std::exception &error) {
    std::cout << "error: " << error.what() << std::endl;
    return 1;
  }
}

#endif
