# libsyncfree_core: the kernels behind a C interface, for C++ programs. find_package(syncfree) finds it.
#
# It can be shared because it exports only C symbols: the program's compiler, standard library and CUDA runtime
# may differ from ours. The soname has the version of the interface, and so has the file's own name, because
# wheels contain no symbolic links.
file(STRINGS pyproject.toml version_line REGEX "^version = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" SYNCFREE_VERSION "${version_line}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" SYNCFREE_INTERFACE_VERSION "${SYNCFREE_VERSION}")
set(generated "${CMAKE_CURRENT_BINARY_DIR}/generated")
configure_file(include/syncfree/version.h.in "${generated}/include/syncfree/version.h" @ONLY)

file(GLOB api CONFIGURE_DEPENDS csrc/api/*.cpp)
set(timing clock_stamp cuda_device cuda_driver device_code event_bracket event_pair region_queues
  region_timer) # of the runtime, without Python
list(TRANSFORM timing REPLACE "(.+)" "csrc/runtime/\\1.cpp")
add_library(syncfree_core SHARED ${api} ${timing})
add_library(syncfree::core ALIAS syncfree_core)
target_link_libraries(syncfree_core PRIVATE syncfree_cpu $<TARGET_NAME_IF_EXISTS:syncfree_cuda> ${CMAKE_DL_LIBS})
target_include_directories(syncfree_core PUBLIC
  "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include;${generated}/include>" $<INSTALL_INTERFACE:include>)
target_link_options(syncfree_core PRIVATE
  -Wl,--no-undefined "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/core_symbols.map")
set_target_properties(syncfree_core PROPERTIES
  EXPORT_NAME core VERSION ${SYNCFREE_INTERFACE_VERSION} SOVERSION ${SYNCFREE_INTERFACE_VERSION}
  LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/core_symbols.map")

include(CMakePackageConfigHelpers)
set(package lib/cmake/syncfree)
set(SYNCFREE_WITH_CUDA ${SYNCFREE_BUILD_CUDA})
configure_package_config_file(cmake/syncfreeConfig.cmake.in "${generated}/syncfreeConfig.cmake"
  INSTALL_DESTINATION ${package})
write_basic_package_version_file("${generated}/syncfreeConfigVersion.cmake"
  VERSION ${SYNCFREE_VERSION} COMPATIBILITY SameMinorVersion)
# `-lsyncfree_core` looks for the name without a version: in a wheel, a linker script replaces the symbolic link.
if(SYNCFREE_PYTHON)
  set(namelink NAMELINK_SKIP)
  file(CONFIGURE OUTPUT "${generated}/libsyncfree_core.so"
    CONTENT "INPUT(libsyncfree_core.so.${SYNCFREE_INTERFACE_VERSION})\n")
  install(FILES "${generated}/libsyncfree_core.so" DESTINATION lib COMPONENT core)
endif()
install(TARGETS syncfree_core EXPORT syncfreeTargets LIBRARY DESTINATION lib COMPONENT core ${namelink})
install(EXPORT syncfreeTargets NAMESPACE syncfree:: DESTINATION ${package} COMPONENT core)
install(FILES "${generated}/syncfreeConfig.cmake" "${generated}/syncfreeConfigVersion.cmake"
  DESTINATION ${package} COMPONENT core)
install(DIRECTORY include/syncfree "${generated}/include/syncfree" DESTINATION include COMPONENT core
  FILES_MATCHING PATTERN "*.h")
