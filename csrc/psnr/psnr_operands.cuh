// Where the elements of one result lie in memory, and the pieces that its sum is cut into.
#pragma once

#include <algorithm>

#include "core/divide.h"
#include "core/pair_offsets.h"
#include "psnr/psnr_math.h"
#include "psnr/psnr_operands.h"

namespace syncfree::psnr {

struct Place {
  PairOffsets offsets;
  std::int64_t left;  // elements from here to the end of the last dimension
};

// Finds logical element `index` of dimensions [begin, end).
__device__ inline Place place_of(const Operands& o, std::int64_t index, int begin, int end) {
  Place place{{0, 0}, 1};
  for (int d = end - 1; d >= begin; --d) {
    const std::int64_t size = o.preds.size[d];
    const std::int64_t quotient = d > begin ? divide(index, size) : 0;
    const std::int64_t coordinate = index - quotient * size;
    if (d == end - 1) place.left = size - coordinate;
    place.offsets.first += coordinate * o.preds.stride[d];
    place.offsets.second += coordinate * o.target.stride[d];
    index = quotient;
  }
  return place;
}

// How the elements of one result, in logical order, are cut into pieces that are summed apart.
// Large planes are cut one by one, all in the same places: the channels of a pixel then belong to
// the same piece of their planes, and a block that reads pixels with interleaved channels can sum
// all of them. The cuts follow from the logical shape and the type alone, so that the bits of a
// result depend neither on batch, layout nor grid.
struct Pieces {
  std::int64_t plane;  // all elements where planes are not cut apart
  std::int64_t of_plane;
  std::int64_t elements;  // in one piece
  std::int64_t count;     // of the result
};

// Planes are not cut one by one where that would slow down the contiguous layout: if they do not
// begin at vector boundaries, or are so small that incomplete groups matter.
inline Pieces make_pieces(std::int64_t reduced, std::int64_t plane, std::int64_t quantum,
                          std::int64_t vector, std::int64_t most) {
  const Chunks whole = make_chunks(reduced, quantum, most);
  if (plane % vector != 0 || plane < 4 * quantum || plane < whole.elements)
    return {reduced, whole.count, whole.elements, whole.count};
  const std::int64_t wanted = (plane + whole.elements - 1) / whole.elements;
  const Chunks even = make_chunks(plane, quantum, wanted);
  return {plane, even.count, even.elements, reduced / plane * even.count};
}

}  // namespace syncfree::psnr
