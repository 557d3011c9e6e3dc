// The layouts as the kernels' compiler sees them: LAYOUTS is what gpu/build.rs makes of `layouts.in`,
// size and then every field's offset. Constants follow, as in gpu/src/layout_check.rs.
#include "kernels/setassoc.h"

#include <cstddef>

extern "C" const uint32_t gnomon_layouts[] = {
    LAYOUTS
    KEYS_MAX, HEAD_BYTES_MAX, WAYS, TABLES, CELLS, RINGS_MAX, REPLY_HEAD_BYTES, ROW_TEXT_MAX, WHOLE_TEXT_MAX, GET_SHARED_BYTES, DIGEST_SHARED_BYTES,
    UPDATE_SHARED_BYTES,
    way_bytes(16), way_bytes(32), way_bytes(64), way_bytes(128), way_bytes(250),
};
extern "C" const uint32_t gnomon_layouts_len = sizeof gnomon_layouts / sizeof *gnomon_layouts;
