// Frames of a size that the processor says: vectors that are kept over a call.
#include <arm_sve.h>

void other(void);
svint32_t another(svint32_t, svint32_t);

svint32_t vectors(svint32_t a, svint32_t b) {
    svint32_t sum = svadd_x(svptrue_b32(), a, b);
    other();
    return another(sum, a);
}
