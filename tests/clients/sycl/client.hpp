// What the programs share: a queue, kernels from OpenCL C, printing, and the way an error ends a
// program.
#ifndef CLIENT_HPP
#define CLIENT_HPP

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <iostream>
#include <numeric>
#include <sycl/backend/opencl.hpp>
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/sycl.hpp>
#include <vector>

namespace exp_ = sycl::ext::oneapi::experimental;
using graph_t = exp_::command_graph<exp_::graph_state::modifiable>;
using kind = sycl::usm::alloc;
using executable_t = exp_::command_graph<exp_::graph_state::executable>;

// A kernel of an OpenCL program that is built for the queue's device: host-only compilation makes
// no device code.
inline sycl::kernel make_opencl_kernel(const sycl::queue &queue, const char *source,
                                       const char *name) {
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

// A function of the Level Zero loader that the variable LEVEL_ZERO_LOADER names.
template <typename Function> Function *level_zero(const char *name) {
  static void *loader = dlopen(std::getenv("LEVEL_ZERO_LOADER"), RTLD_NOW | RTLD_LOCAL);
  void *function = loader ? dlsym(loader, name) : nullptr;
  if (!function)
    throw std::runtime_error(std::string("LEVEL_ZERO_LOADER has no ") + name);
  return reinterpret_cast<Function *>(function);
}

// The same on Level Zero. Modules of fairlead's driver have OpenCL C as their native format.
inline sycl::kernel make_level_zero_kernel(const sycl::queue &queue, const char *source,
                                           const char *name) {
  constexpr auto backend = sycl::backend::ext_oneapi_level_zero;
  struct { // ze_module_desc_t
    uint32_t stype;
    const void *next;
    uint32_t format;
    size_t size;
    const void *module;
    const char *flags;
    const void *constants;
  } module_desc = {0x1b, nullptr, 1, std::strlen(source), source, "", nullptr};
  struct { // ze_kernel_desc_t
    uint32_t stype;
    const void *next;
    uint32_t flags;
    const char *name;
  } kernel_desc = {0x1d, nullptr, 0, name};
  auto context = sycl::get_native<backend>(queue.get_context());
  auto device = sycl::get_native<backend>(queue.get_device());
  ze_module_handle_t module = nullptr;
  ze_kernel_handle_t kernel = nullptr;
  int code = level_zero<int(uint32_t)>("zeInit")(0);
  if (!code)
    code = level_zero<int(void *, void *, void *, void *, void *)>("zeModuleCreate")(
        context, device, &module_desc, &module, nullptr);
  if (!code)
    code = level_zero<int(void *, void *, void *)>("zeKernelCreate")(module, &kernel_desc, &kernel);
  if (code)
    throw std::runtime_error("Level Zero makes no kernel: " + std::to_string(code));
  auto bundle = sycl::make_kernel_bundle<backend, sycl::bundle_state::executable>(
      {module}, queue.get_context());
  return sycl::make_kernel<backend>({bundle, kernel}, queue.get_context());
}

inline sycl::kernel make_kernel(const sycl::queue &queue, const char *source, const char *name) {
  bool is_opencl = queue.get_backend() == sycl::backend::opencl;
  return (is_opencl ? make_opencl_kernel : make_level_zero_kernel)(queue, source, name);
}

// A command group that fills USM. On Level Zero libsycl fills by a kernel that only DPC++ compiles,
// so there it is a copy.
template <typename T> auto filling(const sycl::queue &queue, T *to, T value, size_t count) {
  static std::deque<std::vector<T>> kept;
  bool is_opencl = queue.get_backend() == sycl::backend::opencl;
  const T *from = is_opencl ? nullptr : kept.emplace_back(count, value).data();
  return [=](sycl::handler &h) {
    if (from)
      h.memcpy(to, from, count * sizeof(T));
    else
      h.fill(to, value, count);
  };
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
