// A command graph on DPC++ 2024.2 (libsycl.so.7), whose headers no wheel has: what is needed of its
// classes is declared here. Queues, memory and kernels come from dpctl's C interface, whose objects
// they are.
//
// A copy, a fill, two hints and a kernel, recorded from an in-order queue; the graph is run three
// times.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>

namespace sycl {
inline namespace _V1 {
class event {
    std::shared_ptr<void> impl;
};
class handler;
class property_list {
    char empty[64] = {};
};
namespace detail {
struct code_location {
    const char *file = "", *function = "";
    unsigned long line = 0, column = 0;
};
}
class queue {
    std::shared_ptr<void> impl;

public:
    event submit_impl(std::function<void(handler &)>, const detail::code_location &);
};
namespace ext::oneapi::experimental::detail {
class modifiable_command_graph {
    char fields[256];

public:
    modifiable_command_graph(const queue &, const property_list &);
    void begin_recording(queue &);
    void end_recording();
};
}
}
}

// modifiable_command_graph::finalize, which returns an object, and handler::ext_oneapi_graph, which
// takes it: by address, as the C++ ABI has it.
void finalize(void *executable, const void *graph, const sycl::property_list &) asm(
    "_ZNK4sycl3_V13ext6oneapi12experimental6detail24modifiable_command_graph8finalizeERKNS0_"
    "13property_listE");
void run_graph(sycl::handler *, void *executable) asm(
    "_ZN4sycl3_V17handler16ext_oneapi_graphENS0_3ext6oneapi12experimental13command_graphILNS4_"
    "11graph_stateE1EEE");

using Ref = void *;
extern "C" {
Ref DPCTLDeviceMgr_GetDevices(int), DPCTLDeviceVector_GetAt(Ref, size_t),
    DPCTLQueue_CreateForDevice(Ref, void *, int);
Ref DPCTLQueue_GetContext(Ref), DPCTLQueue_GetDevice(Ref), DPCTLmalloc_shared(size_t, Ref);
Ref DPCTLKernelBundle_CreateFromOCLSource(Ref, Ref, const char *, const char *),
    DPCTLKernelBundle_GetKernel(Ref, const char *);
Ref DPCTLQueue_SubmitRange(Ref, Ref, void **, const int *, size_t, const size_t *, size_t,
                           const Ref *, size_t);
Ref DPCTLQueue_Memcpy(Ref, void *, const void *, size_t),
    DPCTLQueue_Memset(Ref, void *, uint8_t, size_t);
Ref DPCTLQueue_Prefetch(Ref, const void *, size_t),
    DPCTLQueue_MemAdvise(Ref, const void *, size_t, int);
void DPCTLQueue_Wait(Ref);
}
enum { ALL_BACKENDS = 0x1f0000, ALL_DEVICES = 0x3f, IN_ORDER = 2, INT32 = 4, POINTER = 10 };

int main() {
    const size_t count = 256, size = count * sizeof(int);
    Ref devices = DPCTLDeviceMgr_GetDevices(ALL_BACKENDS | ALL_DEVICES);
    auto *queue = static_cast<sycl::queue *>(
        DPCTLQueue_CreateForDevice(DPCTLDeviceVector_GetAt(devices, 0), nullptr, IN_ORDER));
    Ref bundle = DPCTLKernelBundle_CreateFromOCLSource(
        DPCTLQueue_GetContext(queue), DPCTLQueue_GetDevice(queue),
        "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }", "");
    Ref kernel = DPCTLKernelBundle_GetKernel(bundle, "add");
    int *x = static_cast<int *>(DPCTLmalloc_shared(size, queue)),
        *y = static_cast<int *>(DPCTLmalloc_shared(size, queue)), by = 5;
    for (size_t i = 0; i < count; i++)
        x[i] = static_cast<int>(i), y[i] = 0;

    using Graph = sycl::ext::oneapi::experimental::detail::modifiable_command_graph;
    alignas(16) static char room[sizeof(Graph)], executable[256];
    auto *graph = new (room) Graph(*queue, {});
    graph->begin_recording(*queue);
    DPCTLQueue_Memcpy(queue, y, x, size);
    DPCTLQueue_Memset(queue, x, 0, size / 2);
    DPCTLQueue_Prefetch(queue, y, size);
    DPCTLQueue_MemAdvise(queue, y, size, 0);
    for (; by < 8; by += 2) {
        void *arguments[] = {y, &by};
        const int types[] = {POINTER, INT32};
        DPCTLQueue_SubmitRange(kernel, queue, arguments, types, 2, &count, 1, nullptr, 0);
    }
    graph->end_recording();
    std::printf("recorded: %d %d %d\n", x[3], x[200], y[200]);
    finalize(executable, graph, {});
    for (int i = 0; i < 3; i++)
        queue->submit_impl([](sycl::handler &handler) { run_graph(&handler, executable); }, {});
    DPCTLQueue_Wait(queue);
    std::printf("run: %d %d %d %d\n", x[3], x[200], y[3], y[200]);
}
