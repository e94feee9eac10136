/* Fat binaries, as NVIDIA's tool `fatbinary` writes them: a head, and parts with a head each. A
 * part is PTX or a cubin. The driver takes the cubin for the device, else PTX that is not newer. */
#include "fake.h"

enum { MAGIC = 0xBA55ED50u, IS_PTX = 1, IS_CUBIN = 2 };

typedef struct whole {
    uint32_t magic;
    uint16_t version, head;   /* bytes of this head */
    uint64_t size;            /* of all parts */
} whole;

typedef struct part {
    uint16_t kind, version;
    uint32_t head;   /* bytes of this head */
    uint64_t size;
    uint32_t compressed, unused[2], architecture;   /* of compressed text, or 0; 90 is sm_90 */
} part;

static bool fits(const part *one, uint32_t device) {
    bool same_major = one->architecture / 10 == device / 10;
    return !one->compressed && one->architecture <= device &&
           (one->kind == IS_PTX || (one->kind == IS_CUBIN && same_major));
}

const void *fake_image_in(const void *image, uint32_t device) {
    const whole *all = image;
    const char *bytes = image, *found = NULL;
    uint32_t best = 0;
    if (all->magic != MAGIC)
        return image;
    for (uint64_t at = all->head; at < all->head + all->size;) {
        const part *one = (const part *)(bytes + at);
        uint32_t rank = one->architecture + (one->kind == IS_CUBIN ? 1000 : 0);
        if (fits(one, device) && rank > best) {
            found = bytes + at + one->head;
            best = rank;
        }
        at += one->head + one->size;
    }
    return found;
}
