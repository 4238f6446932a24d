"""Non-maximum suppression of many classes and images at once on the GPU, and the best boxes of every image.

One block for each image and class. Its 256 threads find the score of the K-th best box by the digits of the scores'
bits, write the numbers of the K best in order of the boxes, and sort them; a score and a number together are unique, so
that every order of work gives the same result. Then they take the boxes from the best on, and compare each with all
that are kept, in the arithmetic of the CPU.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..rounded import ROUNDED

__all__ = ["batched_nms", "detection_rows"]

_THREADS = 256

_CHOOSE = """
// Bits that are in the order of the numbers, none of which is NaN; -0 is 0.
__device__ inline unsigned ordered(float x) {
  const unsigned bits = x == 0 ? 0 : (unsigned)__float_as_int(x);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ inline unsigned long long ordered(double x) {
  const unsigned long long bits = x == 0 ? 0 : (unsigned long long)__double_as_longlong(x);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The sum of the values of the threads before, of both halves of a word; all: of every thread.
__device__ unsigned long long sum_before(unsigned long long value, unsigned long long& all) {
  __shared__ unsigned long long sums[256];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    const unsigned long long add = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += add;
    __syncthreads();
  }
  const unsigned long long before = sums[threadIdx.x] - value;
  all = sums[255];
  __syncthreads();
  return before;
}

// Give the `most` largest of n items to take(item, place), in order of the items, of equal ones the first. Items whose
// score(i, x) is false do not count. Return how many there are.
template <typename Score, typename Take> __device__ int choose(int n, int most, Score score, Take take) {
  __shared__ int digits[256];
  const int bits = 8 * sizeof(T);
  auto none = ordered(T(0));
  decltype(none) pivot = 0;  // below the bits of every score
  T x;
  unsigned long long all, mine = 0;
  for (int i = threadIdx.x; i < n; i += 256) mine += score(i, x);
  sum_before(mine, all);
  const int count = all < (unsigned long long)most ? (int)all : most;
  int equal = 0;  // of those at the pivot so many are taken
  if (all > (unsigned long long)most) {
    equal = most;
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
      digits[threadIdx.x] = 0;
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += 256) {
        if (!score(i, x)) continue;
        const auto key = ordered(x);
        if (shift + 8 == bits || (key ^ pivot) >> (shift + 8) % bits == 0) atomicAdd(&digits[key >> shift & 255], 1);
      }
      __syncthreads();
      int digit = 255;
      for (; digit > 0 && digits[digit] < equal; --digit) equal -= digits[digit];
      pivot |= (decltype(none))digit << shift;
      __syncthreads();
    }
  }
  const int each = (n + 255) / 256, begin = threadIdx.x * each < n ? threadIdx.x * each : n;
  const int end = begin + each < n ? begin + each : n;
  mine = 0;
  for (int i = begin; i < end; ++i)
    if (score(i, x)) mine += ordered(x) > pivot ? 1ull : ordered(x) == pivot ? 1ull << 32 : 0;
  const unsigned long long before = sum_before(mine, all);
  int larger = (int)(before & 0xffffffffu), same = (int)(before >> 32);
  for (int i = begin; i < end; ++i) {
    if (!score(i, x)) continue;
    if (ordered(x) > pivot) take(i, larger++ + (same < equal ? same : equal));
    else if (ordered(x) == pivot && same++ < equal) take(i, larger + same - 1);
  }
  __syncthreads();
  return count;
}
"""

_NMS = f"""{ROUNDED}{_CHOOSE}
__device__ inline T area(const T* box) {{
  const T width = plus(box[2], -box[0]), height = plus(box[3], -box[1]);
  return width >= 0 && height >= 0 ? times(width, height) : T(0);
}}
__device__ inline bool too_close(const T* a, T size, const T* b, T threshold) {{
  const T wide = plus(a[2] < b[2] ? a[2] : b[2], -(a[0] > b[0] ? a[0] : b[0]));
  const T high = plus(a[3] < b[3] ? a[3] : b[3], -(a[1] > b[1] ? a[1] : b[1]));
  if (!(wide > 0 && high > 0)) return false;
  const T common = times(wide, high);
  return !(share(common, plus(plus(size, area(b)), -common)) <= threshold);
}}
extern "C" __global__ void __launch_bounds__(256) batched_nms(const T* scores, const T* boxes, int* kept, int* numbers,
                                                              double least, double limit, double factor,
                                                              long long skipped, long long count, long long classes,
                                                              long long own, long long most) {{
  const long long image = blockIdx.x / classes, label = blockIdx.x % classes;
  scores += image * count * classes + label;
  boxes += 4 * (image * count * own + (own > 1 ? label : 0));
  kept += blockIdx.x * most;
  if (label == skipped) {{
    if (threadIdx.x == 0) numbers[blockIdx.x] = 0;
    return;
  }}
  const T low = (T)least, eta = (T)factor;
  const int n = choose((int)count, (int)most, [&](int i, T& x) {{ return (x = scores[i * classes]) > low; }},
                       [&](int i, int place) {{ kept[place] = i; }});
  // A bitonic network for any n: every exchange moves the better one to the lower place, and places from n on would
  // hold what is worse than all.
  for (int size = 2; size < 2 * n; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {{
      for (int i = threadIdx.x; i < n; i += 256) {{
        const int j = step == size / 2 ? i ^ (size - 1) : i ^ step;
        if (j <= i || j >= n) continue;
        const int a = kept[i], b = kept[j];
        const T x = scores[a * classes], y = scores[b * classes];
        if (y > x || (y == x && b < a)) {{
          kept[i] = b;
          kept[j] = a;
        }}
      }}
      __syncthreads();
    }}
  // The thread that writes a kept box is the one that compares later boxes with it. It overwrites the number of a box
  // that all threads have read.
  T threshold = (T)limit;
  int remain = 0;
  for (int i = 0; i < n; ++i) {{
    const int candidate = kept[i];
    const T* box = boxes + 4 * own * candidate;
    const T size = area(box);
    int hit = 0;
    for (int k = threadIdx.x; k < remain && !hit; k += 256)
      hit = too_close(box, size, boxes + 4 * own * kept[k], threshold);
    if (__syncthreads_or(hit)) continue;
    if (threadIdx.x == remain % 256) kept[remain] = candidate;
    ++remain;
    if (eta < 1 && threshold > (T)0.5) threshold = times(threshold, eta);
  }}
  if (threadIdx.x == 0) numbers[blockIdx.x] = remain;
}}
"""

_ROWS = f"""{_CHOOSE}
extern "C" __global__ void __launch_bounds__(256) detection_rows(const T* scores, const T* boxes, const int* kept,
                                                                 const int* numbers, T* rows, int* found,
                                                                 long long count, long long classes, long long own,
                                                                 long long most, long long limit) {{
  const long long image = blockIdx.x;
  scores += image * count * classes;
  boxes += 4 * image * count * own;
  kept += image * classes * most;
  numbers += image * classes;
  rows += 7 * image * limit;
  const int n = choose((int)(classes * most), (int)limit,
    [&](int i, T& x) {{
      const long long label = i / most;
      if (i - label * most >= numbers[label]) return false;
      x = scores[kept[i] * classes + label];
      return true;
    }},
    [&](int i, int place) {{
      const long long label = i / most;
      const T* box = boxes + 4 * (kept[i] * own + (own > 1 ? label : 0));
      T* row = rows + 7 * place;
      row[0] = (T)image;
      row[1] = (T)label;
      row[2] = scores[kept[i] * classes + label];
      for (int k = 0; k < 4; ++k) row[3 + k] = box[k];
    }});
  if (threadIdx.x == 0) found[image] = n;
}}
"""


def batched_nms(
    scores: AnyArray,
    boxes: AnyArray,
    kept: AnyArray,
    numbers: AnyArray,
    least: float,
    threshold: float,
    eta: float,
    skipped: int,
) -> None:
    """For every image and class choose among P boxes: those with a score above `least`, of these the K best, of these
    the ones that overlap no better one that is kept by more than `threshold`."""
    images, classes, most = kept.shape
    limits = float(least), float(threshold), float(eta), skipped
    sizes = boxes.shape[1], classes, boxes.shape[2], most
    args, grid = (scores, boxes, kept, numbers, *limits, *sizes), images * classes
    launch(_NMS, "batched_nms", boxes.dtype, 0, *args, block=_THREADS, grid=grid)


def detection_rows(
    scores: AnyArray, boxes: AnyArray, kept: AnyArray, numbers: AnyArray, rows: AnyArray, found: AnyArray
) -> None:
    """Write the M best kept boxes of every image, by class, then as `kept` has them."""
    images, classes, most = kept.shape
    sizes = boxes.shape[1], classes, boxes.shape[2], most, rows.shape[1]
    arrays = scores, boxes, kept, numbers, rows, found
    launch(_ROWS, "detection_rows", boxes.dtype, 0, *arrays, *sizes, block=_THREADS, grid=images)
