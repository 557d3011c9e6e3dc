// Batches over the set-associative index, for as long as the host wants. All blocks must run at
// once; `blocks_per_place` of them share the batches of a place.
#include "serve.h"
#include "setassoc.h"

KERNEL(serve_setassoc, ServeParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  serve<SetSearch>(p, shared_memory<GetShared>());
}
