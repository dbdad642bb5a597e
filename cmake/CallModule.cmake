# Faster calls of our operators from Python, and nodes of autograd's graph, through the C++ interfaces of
# torch and Python (csrc/call).
include(TorchInterface)

set(call_sources call.cpp callable.cpp checked_call.cpp differentiable.cpp first_derivative.cpp image_call.cpp kept_call.cpp
  kept_options.cpp module.cpp numbered_call.cpp operator.cpp ssim_loss.cpp step_call.cpp)
list(TRANSFORM call_sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/csrc/call/")
check_torch_source(SYNCFREE_CALL_COMPILES "${call_sources}" "calls take the host a microsecond more, gradients 20 to 50"
  ${Python_INCLUDE_DIRS})

if(SYNCFREE_CALL_COMPILES)
  Python_add_library(syncfree_call MODULE WITH_SOABI ${call_sources})
  # As one translation unit, because torch's headers take ten seconds in each.
  set_target_properties(syncfree_call PROPERTIES PREFIX "" OUTPUT_NAME "syncfree_call-${SYNCFREE_TORCH_MINOR}"
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_include_directories(syncfree_call SYSTEM PRIVATE "${TORCH_DIR}/include")
  target_link_libraries(syncfree_call PRIVATE "${TORCH_DIR}/lib/libtorch_python.so" "${TORCH_DIR}/lib/libtorch_cpu.so"
    "${TORCH_DIR}/lib/libc10.so")
  install(TARGETS syncfree_call LIBRARY DESTINATION lib)
endif()
