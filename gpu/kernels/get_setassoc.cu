// A batch of requests over the set-associative index. Blocks of any number share the batch.
#include "get.h"
#include "setassoc.h"

KERNEL(get_setassoc, GetParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  Place *place = at<Place>(p.place);
  get_batch<SetSearch>(p.packets, p.index, place, place->n, place->now, place->rung, blockIdx.x,
                       gridDim.x, at<u32>(p.arrived), shared_memory<GetShared>());
}
