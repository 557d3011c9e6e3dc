// A batch of requests over the cuckoo index. Blocks of any number share the batch.
#include "get.h"
#include "cuckoo.h"

KERNEL(get_cuckoo, GetParams, GET_THREADS, GET_BLOCKS_AT_ONCE) {
  Place *place = at<Place>(p.place);
  get_batch<CuckooSearch>(p.packets, p.index, place, place->n, place->now, place->rung, blockIdx.x,
                       gridDim.x, at<u32>(p.arrived), shared_memory<GetShared>());
}
