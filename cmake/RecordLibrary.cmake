# Reports torch's operators to the sync detector, through torch's C++ interface (csrc/record).
include(TorchInterface)

set(record_source "${CMAKE_CURRENT_SOURCE_DIR}/csrc/record/record.cpp")
check_torch_source(SYNCFREE_RECORD_COMPILES "${record_source}"
  "the sync detector will not name operators and forward lines" "${CMAKE_CURRENT_SOURCE_DIR}/csrc")

if(SYNCFREE_RECORD_COMPILES)
  add_library(syncfree_record MODULE "${record_source}")
  set_target_properties(syncfree_record PROPERTIES OUTPUT_NAME "syncfree_record-${SYNCFREE_TORCH_MINOR}")
  target_include_directories(syncfree_record PRIVATE csrc)
  target_include_directories(syncfree_record SYSTEM PRIVATE "${TORCH_DIR}/include")
  target_link_libraries(syncfree_record PRIVATE "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")
  install(TARGETS syncfree_record LIBRARY DESTINATION lib)
endif()
