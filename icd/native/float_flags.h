/* The flags of a thread's floating point unit, as PoCL has them while a kernel runs. */
#ifndef FL_FLOAT_FLAGS_H
#define FL_FLOAT_FLAGS_H

#include <stdint.h>

#if defined __x86_64__   /* MXCSR */
#include <xmmintrin.h>
#define FL_KNOWS_FLOAT_FLAGS true
#define FL_PLAIN_FLAGS 0x1f80     /* no exceptions, round to nearest */
#define FL_FLUSHING_FLAGS 0x9fc0  /* and denormals are zero, for operands and results */
static inline uint32_t fl_float_flags(void) { return _mm_getcsr(); }
static inline void fl_set_float_flags(uint32_t flags) { _mm_setcsr(flags); }

#elif defined __aarch64__   /* FPCR, which PoCL never changes */
#define FL_KNOWS_FLOAT_FLAGS true
#define FL_PLAIN_FLAGS 0
#define FL_FLUSHING_FLAGS 0
static inline uint32_t fl_float_flags(void) {
    uint64_t flags;
    __asm__ volatile("mrs %0, fpcr" : "=r"(flags));
    return (uint32_t)flags;   /* the upper half is reserved */
}
static inline void fl_set_float_flags(uint32_t flags) {
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)flags));
}

#else   /* not known, so the engine is off */
#define FL_KNOWS_FLOAT_FLAGS false
#define FL_PLAIN_FLAGS 0
#define FL_FLUSHING_FLAGS 0
static inline uint32_t fl_float_flags(void) { return 0; }
static inline void fl_set_float_flags(uint32_t flags) { (void)flags; }
#endif

#endif
