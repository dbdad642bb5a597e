# Allocation of CUDA tensors for our ops, through torch's C++ interface (csrc/empty).
include(TorchInterface)

set(empty_source "${CMAKE_CURRENT_SOURCE_DIR}/csrc/empty/empty.cpp")
if(EXISTS "${TORCH_DIR}/lib/libtorch_cuda.so")
  check_torch_source(SYNCFREE_EMPTY_COMPILES "${empty_source}" "calls on CUDA take the host 0.4 microseconds more")
endif()

if(SYNCFREE_EMPTY_COMPILES)
  add_library(syncfree_empty MODULE "${empty_source}")
  set_target_properties(syncfree_empty PROPERTIES OUTPUT_NAME "syncfree_empty-${SYNCFREE_TORCH_MINOR}")
  target_include_directories(syncfree_empty SYSTEM PRIVATE "${TORCH_DIR}/include")
  target_link_libraries(syncfree_empty PRIVATE "${TORCH_DIR}/lib/libtorch_cuda.so"
    "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")
  install(TARGETS syncfree_empty LIBRARY DESTINATION lib)
endif()
